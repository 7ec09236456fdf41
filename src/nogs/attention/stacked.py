"""Layers whose parameters carry a leading axis M, one entry per network, so that many networks run as one program.

With M = 1 they call torch's own kernels on the single network. With M > 1 they are batched matrix products, since
grouped convolutions of few channels underuse a GPU. Both compute the same function, which tests check.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def linear(
    x: Float[Tensor, "M B I"], weight: Float[Tensor, "M O I"], bias: Float[Tensor, "M O"]
) -> Float[Tensor, "M B O"]:
    """Each network's affine map."""
    if len(weight) == 1:
        return F.linear(x.squeeze(0), weight.squeeze(0), bias.squeeze(0)).unsqueeze(0)
    return torch.baddbmm(bias[:, None], x, weight.mT)


def convolve(
    x: Float[Tensor, "M B H W C"],
    weight: Float[Tensor, "M O C 3 3"],
    bias: Float[Tensor, "M O"] | None,
    *,
    stride: int,
    padding: int = 0,
) -> Float[Tensor, "M B H2 W2 O"]:
    """Each network's 3 x 3 convolution, channels last, with a border of zeros `padding` wide."""
    if len(x) == 1:
        channels_first, own = x.squeeze(0).permute(0, 3, 1, 2), None if bias is None else bias.squeeze(0)
        out = F.conv2d(channels_first, weight.squeeze(0), own, stride=stride, padding=padding)
        return out.permute(0, 2, 3, 1).unsqueeze(0)
    if padding:
        x = F.pad(x, (0, 0, padding, padding, padding, padding))
    networks, batch, height, width, _ = x.shape
    bias = weight.new_zeros(weight.shape[:2]) if bias is None else bias
    rows, columns = (height - 3) // stride + 1, (width - 3) // stride + 1
    if stride == 1 and rows % 2 == columns % 2 == 0:
        # four neighbouring outputs from one 4 x 4 patch: less than half as many numbers to copy, and matrix shapes that
        # suit tensor cores even with three channels
        shifted = [F.pad(weight, (j, 1 - j, i, 1 - i)) for i in (0, 1) for j in (0, 1)]
        blocks = _products(x, torch.cat(shifted, 1), bias.repeat(1, 4), stride=2)
        blocks = blocks.view(networks, batch, rows // 2, columns // 2, 2, 2, -1).transpose(3, 4)
        return blocks.reshape(networks, batch, rows, columns, -1)
    return _products(x, weight, bias, stride=stride).view(networks, batch, rows, columns, -1)


def _products(x: Tensor, weight: Tensor, bias: Tensor, *, stride: int) -> Tensor:
    """A convolution as one matrix product per network: `[M, B H2 W2, O]`."""
    patches = _Unfold.apply(x, weight.shape[-1], stride)
    return torch.baddbmm(bias[:, None], patches, weight.permute(0, 3, 4, 2, 1).flatten(1, 3))


def max_pool(x: Float[Tensor, "M B H W C"]) -> Float[Tensor, "M B H2 W2 C"]:
    """2 x 2 maxima."""
    pooled = F.max_pool2d(x.flatten(0, 1).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    return pooled.reshape(*x.shape[:2], *pooled.shape[1:])


def batch_norm(
    x: Float[Tensor, "M *batch C"], weight: Float[Tensor, "M C"], bias: Float[Tensor, "M C"]
) -> Float[Tensor, "M *batch C"]:
    """Normalise by the statistics of the current batch, in training and after it, as the release does."""
    if x.device.type == "cpu" and x[0, ..., 0].numel() > 1:  # torch's own refuses a single value
        own = [
            F.batch_norm(each.movedim(-1, 1), None, None, scale, shift, training=True).movedim(1, -1)
            for each, scale, shift in zip(x, weight, bias)
        ]
        return own[0].unsqueeze(0) if len(own) == 1 else torch.stack(own)
    axes = tuple(range(1, x.ndim - 1))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    shape = (len(x), *(1,) * len(axes), -1)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight.view(shape) + bias.view(shape)


def gru(
    from_input: Float[Tensor, "M B H3"], from_state: Float[Tensor, "M B H3"], state: Float[Tensor, "M B H"]
) -> Float[Tensor, "M B H"]:
    """The new state of a GRU (reset, update, new, in torch's order) from its affine maps of input and state."""
    if state.is_cuda and not torch.compiler.is_compiling():  # the kernel behind torch.nn.GRUCell, one launch each way
        flat = from_input.flatten(0, 1), from_state.flatten(0, 1), state.flatten(0, 1)
        return torch.ops.aten._thnn_fused_gru_cell(*flat, None, None)[0].view_as(state)
    return _GRU.apply(from_input, from_state, state)


class _GRU(torch.autograd.Function):
    """h' = n + z (h - n) with r, z = sigmoid(i + s) and n = tanh(i + r s), in few operations each way."""

    @staticmethod
    def forward(ctx: Any, from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
        size = state.shape[-1]
        gates = (from_input[..., : 2 * size] + from_state[..., : 2 * size]).sigmoid_()
        reset, update = gates[..., :size], gates[..., size:]
        recurrent = from_state[..., 2 * size :]
        new = torch.addcmul(from_input[..., 2 * size :], reset, recurrent).tanh_()
        ctx.save_for_backward(gates, new, recurrent, state)
        return torch.lerp(new, state, update)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, new, recurrent, state = ctx.saved_tensors
        gradient, size = gradients[0], state.shape[-1]
        reset, update = gates[..., :size], gates[..., size:]
        to_state = gradient * update
        to_new = (gradient - to_state).mul_(1 - new * new)
        to_gates = torch.cat([to_new * recurrent, gradient * (state - new)], -1).mul_(gates).mul_(1 - gates)
        return torch.cat([to_gates, to_new], -1), torch.cat([to_gates, to_new * reset], -1), to_state


class _Unfold(torch.autograd.Function):
    """All size x size patches as rows `[M, B H2 W2, size size C]`; the backward pass adds strided slices in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, stride: int) -> Tensor:
        ctx.size, ctx.stride, ctx.shape = size, stride, x.shape
        patches = x.unfold(2, size, stride).unfold(3, size, stride)  # M B H2 W2 C size size
        ctx.places = patches.shape[2:4]
        return patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(len(x), -1, size * size * x.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        networks, batch, _, _, channels = ctx.shape
        (rows, columns), size, stride = ctx.places, ctx.size, ctx.stride
        patches = gradients[0].view(networks, batch, rows, columns, size, size, channels)
        out = patches.new_zeros(ctx.shape)
        for i in range(size):
            for j in range(size):
                target = out[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
                target += patches[:, :, :, :, i, j]
        return out, None, None
