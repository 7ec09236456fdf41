"""All T glimpses of a training step on a CPU as one function, whose gradients are written by hand.

Locations are drawn one after another, but the gradients of all T glimpses go through the layers together. Only the
GRU's own recurrence is a loop in the backward pass. It computes the function of `Networks.forward`, which tests check,
for the paper's embedder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.architecture import Architecture
from nogs.attention.trace import Parameters, Trace, look

_threshold = torch.ops.aten.threshold_backward.grad_input
"""The gradient of a ReLU from its output, in place."""


def unrolled(
    architecture: Architecture,
    parameters: Parameters,
    images: UInt8[Tensor, "N h w C"],
    rows: Int[Tensor, "M B"],
    uniforms: Float[Tensor, "M B T"] | None,
    forced: Int[Tensor, "M B T"] | None,
    flip: Bool[Tensor, "M B"] | None,
) -> tuple[Int[Tensor, "M B T"], Float[Tensor, "M B T"], Float[Tensor, "M B T"], Float[Tensor, "M B K"]]:
    """Locations, their log-probabilities, baselines and logits of the labels: see `Networks.forward`."""
    given = (images, rows, uniforms, forced, flip)
    locations, log_probabilities, baselines, logits = _Unrolled.apply(
        architecture, *given, tuple(parameters), *parameters.values()
    )
    return locations, log_probabilities, baselines, logits


class _Unrolled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        architecture: Architecture,
        images: Tensor,
        rows: Tensor,
        uniforms: Tensor | None,
        forced: Tensor | None,
        flip: Tensor | None,
        names: tuple[str, ...],
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        traces, found = [], []
        for m in range(len(rows)):
            p = {name: parameter[m] for name, parameter in zip(names, parameters)}
            own = (None if x is None else x[m] for x in (uniforms, forced, flip))
            trace, log_probabilities = look(p, architecture, images, rows[m], *own)
            baselines = F.linear(trace.states[:-1], p["baseline_weight"], p["baseline_bias"])[..., 0]
            logits = F.linear(trace.states[-1], p["classify_weight"], p["classify_bias"])
            traces.append(trace)
            found.append((trace.locations.T, log_probabilities.T, baselines.T, logits))
        ctx.traces, ctx.names = traces, names
        ctx.save_for_backward(*parameters)
        ctx.set_materialize_grads(False)
        locations, *rest = (torch.stack(x) for x in zip(*found))
        ctx.mark_non_differentiable(locations)
        return locations, *rest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        out: list[Parameters] = []
        for m, trace in enumerate(ctx.traces):
            p = {name: parameter[m] for name, parameter in zip(ctx.names, ctx.saved_tensors)}
            _, log_probabilities, baselines, logits = (None if g is None else g[m] for g in gradients)
            found: Parameters = {}
            if log_probabilities is not None:
                found |= _location_gradients(p, trace, log_probabilities.T)
            if baselines is not None:
                found |= _affine("baseline", baselines.T.reshape(-1, 1), trace.states[:-1].flatten(0, 1))
            if logits is not None:
                found |= _core_gradients(p, trace, logits)
            out.append(found)
        stacked = (_stack([found[name] for found in out]) if name in out[0] else None for name in ctx.names)
        return *(None,) * 7, *stacked


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return parts[0][None] if len(parts) == 1 else torch.stack(list(parts))


def _affine(name: str, gradient: Float[Tensor, "N O"], inputs: Float[Tensor, "N I"]) -> Parameters:
    """Gradients of an affine map's parameters."""
    return {f"{name}_weight": gradient.T @ inputs, f"{name}_bias": gradient.sum(0)}


def _location_gradients(p: Parameters, trace: Trace, gradient: Float[Tensor, "T B"]) -> Parameters:
    """Of the location network, from those of the log-probabilities; no gradient reaches the states.

    A logit's gradient is that of the log-probability times -`excess`; it is never written out over all locations.
    """
    minus, excess = -gradient.reshape(-1, 1), trace.excess.flatten(0, 1)
    located = trace.from_state[..., 3 * trace.new.shape[-1] :].flatten(0, 1)
    to_located = (excess @ p["locate2_weight"]).mul_(minus)
    return {
        "locate2_weight": excess.T @ (located * minus),
        "locate2_bias": (minus.T @ excess)[0],
        **_affine(
            "locate1", _threshold(to_located, located, 0, grad_input=to_located), trace.states[:-1].flatten(0, 1)
        ),
    }


def _core_gradients(p: Parameters, trace: Trace, gradient: Float[Tensor, "B K"]) -> Parameters:
    """Of classifier, GRU and embedders, from those of the labels' logits."""
    out = _affine("classify", gradient, trace.states[-1])
    glimpses, batch, size = trace.new.shape
    reset, update = trace.gates[..., :size], trace.gates[..., size:]
    slope = trace.gates * (1 - trace.gates)
    of_new = 1 - trace.new.square()
    of_reset = slope[..., :size].mul_(trace.from_state[..., 2 * size : 3 * size])
    of_update = slope[..., size:].mul_(trace.states[:-1] - trace.new)
    # columns: new, reset, update for the input, then new for the state, so that both have three contiguous ones
    to_gates = torch.empty(glimpses, batch, 4 * size)
    to_state = gradient @ p["classify_weight"]
    columns = [x.unbind() for x in (*to_gates.split(size, -1), to_gates[..., size:])]
    factors = [x.unbind() for x in (reset, update, of_new, of_reset, of_update)]
    for t in reversed(range(glimpses)):
        new, to_reset, to_update, new_of_state, of_state = (x[t] for x in columns)
        reset, update, of_new, of_reset, of_update = (x[t] for x in factors)
        kept = to_state * update
        torch.sub(to_state, kept, out=new).mul_(of_new)
        torch.mul(new, of_reset, out=to_reset)
        torch.mul(to_state, of_update, out=to_update)
        torch.mul(new, reset, out=new_of_state)
        to_state = torch.addmm(kept, of_state, p["state_weight"])
    out["initial_state"] = to_state.sum(0)
    from_input, from_state = to_gates.flatten(0, 1)[:, : 3 * size], to_gates.flatten(0, 1)[:, size:]
    inputs = trace.inputs.flatten(0, 1)
    out |= _affine("state", from_state, trace.states[:-1].flatten(0, 1))
    out |= {name: x.roll(-size, 0) for name, x in _affine("input", from_input, inputs).items()}
    to_inputs = from_input @ p["input_weight"].roll(size, 0)
    return out | _glimpse_gradients(p, trace, _threshold(to_inputs, inputs, 0, grad_input=to_inputs))


def _glimpse_gradients(p: Parameters, trace: Trace, gradient: Float[Tensor, "N D"]) -> Parameters:
    """Of the embedders of pixels and locations, from those of the sum of both."""
    features, glimpse = trace.features, trace.glimpse.flatten(0, 1)
    weight, bias = gradient.T @ glimpse, gradient.sum(0)
    to_glimpse = gradient @ torch.cat([p["project_weight"], p["place2_weight"]], 1)
    _threshold(to_glimpse, glimpse, 0, grad_input=to_glimpse)
    pixels, conv1 = (x.flatten(0, 1).permute(0, 3, 1, 2) for x in (trace.pixels, trace.conv1))
    pooled_from = torch.cat(trace.pooled_from)
    side = pooled_from.shape[-1]
    to_pooled = to_glimpse[:, :features].unflatten(1, (side, side, 32)).permute(0, 3, 1, 2)
    like = to_pooled.new_empty(len(glimpse), 2 * side, 2 * side, 32).permute(0, 3, 1, 2)
    to_conv2 = torch.ops.aten.max_pool2d_with_indices_backward(
        to_pooled, like, [2, 2], [2, 2], [0, 0], [1, 1], False, pooled_from
    )
    to_conv1, *conv2_gradients = _convolution_gradients(to_conv2, conv1, p["conv2_weight"], stride=2, inputs=True)
    assert to_conv1 is not None
    _threshold(to_conv1, conv1, 0, grad_input=to_conv1)
    _, *conv1_gradients = _convolution_gradients(to_conv1, pixels, p["conv1_weight"], stride=1, inputs=False)
    return {
        **dict(zip(("conv1_weight", "conv1_bias"), conv1_gradients)),
        **dict(zip(("conv2_weight", "conv2_bias"), conv2_gradients)),
        "project_weight": weight[:, :features],
        "project_bias": bias,
        "place2_weight": weight[:, features:],
        "place2_bias": bias.clone(),
        **_affine("place1", to_glimpse[:, features:], trace.coordinates.flatten(0, 1)),
    }


def _convolution_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, *, stride: int, inputs: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Of a convolution's input (if `inputs`), weight and bias; separate calls take a sixth less time."""

    def ask(*which: bool) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            gradient, x, weight, [len(weight)], [stride] * 2, [0, 0], [1, 1], False, [0, 0], 1, list(which)
        )
        return found

    return ask(True, False, False)[0] if inputs else None, *ask(False, True, True)[1:]
