"""The fused kernels against the plain matrix products: on a GPU if there is one, else in triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch

from nogs.bank.bank import Bank
from nogs.completion.proposal import CodeSpace
from small_banks import bank as small_bank
from small_banks import normalised, pictures

triton = pytest.importorskip("triton", reason="triton is not installed here, so there are no fused kernels")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
COMPILED = torch.cuda.is_available() and not INTERPRETED
kernels = pytest.mark.skipif(
    not (INTERPRETED or COMPILED), reason="run in another process by test_everything_below_in_tritons_interpreter"
)

if INTERPRETED:
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_indices(tensor, scope):
        """Loop bounds as numpy >= 2.4 wants them: triton 3.6 turns an array of one number into an int."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_with_indices

ONE, NINE = [(0, 0)], [(r, c) for r in (-2, 0, 2) for c in (-2, 0, 2)]
# top-left pixels of glimpses of 4 px in pictures of 12 x 14, on borders and inside; the images share some of them
PLACES = torch.tensor(
    [
        [[0, 0], [4, 7], [8, 10], [5, 2], [1, 9]],
        [[0, 0], [3, 3], [8, 10], [0, 10], [4, 7]],
        [[0, 0], [4, 7], [2, 2], [5, 2], [6, 6]],
    ]
)


def test_everything_below_in_tritons_interpreter():
    if INTERPRETED or COMPILED:
        pytest.skip("the kernels run in this process")
    # triton decides while it is imported whether it interprets, so that takes a process of its own
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.fixture(scope="module")
def bank():
    found = small_bank(150, components=20)  # more than one tile of rows, and neither tile nor components full
    return Bank(found.images, found.pca, found.codes.half().float(), found.about)


def spaces(bank, dtype, **options):
    """The plain way in float32 on the CPU, and the fused one."""
    device = "cuda" if COMPILED else "cpu"
    other = Bank(bank.images, bank.pca.to(device), bank.codes.to(device, dtype), bank.about)
    fused = CodeSpace(other, glimpse=4, **options)
    assert fused.fused
    return CodeSpace(bank, glimpse=4, fused=False, **options), fused


def asked(space, images, glimpses):
    pixels = PLACES[:images, :glimpses]
    shown = torch.from_numpy(normalised(pictures(images, seed=9))).float()
    patches = [shown[b, r : r + 4, c : c + 4].flatten() for b in range(images) for r, c in pixels[b].tolist()]
    return torch.stack(patches).unflatten(0, (images, glimpses)).to(space.bank.device), pixels


def log_weights(space, images, glimpses, v=20.0):
    return space.log_likelihood(*asked(space, images, glimpses), temperature=v).cpu()


# a GPU's codes are float16; in float32 the interpreter shows that nothing but rounding differs
EXACT = torch.float16 if COMPILED else torch.float32


def agree(found, truth, dtype):
    """Within rounding: float16 keeps 11 bits of the codes, maps and u, whose products of either sign add up."""
    few = 1e-5 if dtype == torch.float32 else 2e-3
    return torch.allclose(found.cpu(), truth, rtol=few, atol=few * float(truth.abs().mean()))


@kernels
@pytest.mark.parametrize(
    ("flips", "dtype"),
    [(True, EXACT), (True, torch.float16), (False, torch.float16)],
    ids=["flips", "flips in float16", "no flips in float16"],
)
@pytest.mark.parametrize("shifts", [ONE, NINE], ids=["one shift", "nine shifts"])
def test_log_weights_agree_with_the_plain_way(bank, shifts, flips, dtype):
    plain, fused = spaces(bank, dtype, shifts=shifts, flips=flips)
    truth, found = log_weights(plain, 2, 2), log_weights(fused, 2, 2)
    assert found.shape == truth.shape == (2, 2 if flips else 1, 150)
    assert agree(found, truth, dtype)
    assert float(truth.std(2).min()) > 0.5  # the comparison is about something


@kernels
@pytest.mark.parametrize("shifts", [ONE, NINE], ids=["one shift", "nine shifts"])
def test_distances_agree_with_the_plain_way_and_are_finite_outside_too(bank, shifts):
    plain, fused = spaces(bank, EXACT, shifts=shifts)
    (truth, gates), (found, same) = (space.all_distances(*asked(space, 2, 3)) for space in (plain, fused))
    assert found.shape == truth.shape == (2, 3, 2, len(shifts), 150)
    assert agree(found, truth, EXACT)
    assert torch.equal(gates, same.cpu())
    assert (not bool(gates.isfinite().all())) == (len(shifts) > 1)  # some shifts leave the image


@kernels
@pytest.mark.parametrize(("glimpses", "images", "shifts"), [(1, 3, ONE), (3, 2, ONE), (5, 3, ONE), (5, 1, NINE)])
def test_any_number_of_glimpses_is_summed(bank, glimpses, images, shifts):
    plain, fused = spaces(bank, torch.float16, shifts=shifts, flips=False, variance_kept=0.9)  # ranks of 8, not 16
    assert min(fused.rank, fused.shift_rank if shifts == NINE else 8) < 16
    assert agree(log_weights(fused, images, glimpses), log_weights(plain, images, glimpses), torch.float16)


@kernels
@pytest.mark.parametrize(("images", "shifts"), [(3, ONE), (2, NINE)], ids=["one shift", "nine shifts"])
def test_an_image_has_the_same_numbers_alone_and_among_others(bank, images, shifts, monkeypatch):
    from nogs.completion import fused as module

    _, fused = spaces(bank, torch.float16, shifts=shifts, flips=shifts == ONE)
    query, pixels = asked(fused, images, 2)
    together = fused.log_likelihood(query, pixels, temperature=20.0)
    for b in range(images):
        alone = fused.log_likelihood(query[b : b + 1], pixels[b : b + 1], temperature=20.0)
        assert torch.equal(alone[0], together[b])
    monkeypatch.setattr(module, "TOGETHER", 1)  # each image has a program of its own
    assert torch.equal(fused.log_likelihood(query, pixels, temperature=20.0), together)
    monkeypatch.setattr(module, "_STACKED", 1)  # and a launch
    assert torch.equal(fused.log_likelihood(query, pixels, temperature=20.0), together)


@kernels
def test_likelihoods_far_below_the_smallest_number_are_joined(bank):
    plain, fused = spaces(bank, torch.float16, shifts=NINE, flips=False)
    truth, found = log_weights(plain, 1, 1, v=1e-3), log_weights(fused, 1, 1, v=1e-3)
    assert float(truth.min()) < -1e4
    assert agree(found, truth, torch.float16)


def test_the_plain_way_is_taken_where_there_is_no_gpu(bank):
    if INTERPRETED:
        pytest.skip("the interpreter stands in for a GPU")
    assert not CodeSpace(bank, glimpse=4).fused


def compiled(kernel, types, sizes, cache, monkeypatch, **options):
    """The kernel for an H200, compiled as a launch would, on a machine that has none."""
    if INTERPRETED:
        pytest.skip("the interpreter compiles nothing")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    names = kernel.arg_names
    source = ASTSource(
        kernel,
        types | dict.fromkeys(sizes, "constexpr"),
        constexprs={(names.index(name),): value for name, value in sizes.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]] for name in types if name in ("codes", "project", "rows")
        },
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def pointers(names, dtype):
    return dict.fromkeys(names.split(), f"*{dtype}")


@pytest.mark.parametrize(("shifts", "joined"), [(1, True), (1, False), (9, True), (9, False)])
def test_kernels_compile_for_an_h200_within_their_shared_memory(shifts, joined, tmp_path, monkeypatch):
    from nogs.completion import fused

    cut, sizes = fused._TILES[0], {"FLIPS": 2, "SHIFTS": shifts, "COMPONENTS": 256, "RANK": 32, "SHIFT_RANK": 32}
    sizes |= {"JOINED": joined, "TOGETHER": 8, "N": cut.rows, "C": 256, "R": 32, "Q": 32, "S": 16}
    types = pointers("codes project forms", "fp16") | pointers("linear constant gate out", "fp32")
    types |= dict.fromkeys(["rows", "images", "glimpses"], "i32") | {"scale": "fp32"}
    options = {"num_warps": cut.warps, "num_stages": cut.stages}
    found = compiled(fused._weigh, types, sizes, tmp_path, monkeypatch, **options)
    most = fused.shared_bytes(cut, components=256, rank=32, shift_rank=32 if shifts > 1 else 0)
    assert found.metadata.shared <= most
    assert 2 * (found.metadata.shared + 1024) <= 228 * 1024  # two programs on a multiprocessor
    assert "wgmma" in found.asm["ptx"]


def test_the_kernel_of_the_queries_compiles_for_an_h200(tmp_path, monkeypatch):
    from nogs.completion import fused

    types = pointers("query patches means tails linear constant", "fp32")
    sizes = {"PATCH": 768, "RANK": 32, "P": fused._PATCH, "R": 32}
    assert compiled(fused._ask, types, sizes, tmp_path, monkeypatch, num_warps=4).asm["cubin"]
