import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from nogs.bank import BankConfig, make_generator
from nogs.bank.generators import finegan, stylegan
from nogs.bank.generators.exported import Diffusers, Exported
from nogs.bank.generators.finegan import FineGAN, FineGANNetwork
from nogs.bank.generators.noise import image_keys, normal
from nogs.bank.generators.pictures import Digits, Folder, TrainingImages
from nogs.bank.generators.stylegan import StyleGAN, StyleGANNetwork
from nogs.data import DataConfig, load_task
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import save_tensors

CPU = torch.device("cpu")
SMALL_STYLEGAN, SMALL_FINEGAN = 16, 64  # resolution; width


@pytest.fixture(scope="module")
def task():
    return load_task(
        DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=200, annotated=20, fragments=2)
    )


def random_weights(network, *, seed=0):
    """Weights of the network's own shapes, batch norm's running variances positive."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, value in network.state_dict().items():
        if value.dtype == torch.int64 or name.endswith("kernel"):
            out[name] = value.clone()
        else:
            out[name] = torch.randn(value.shape, generator=generator)
            if isinstance(network, FineGANNetwork) and value.ndim > 1:
                out[name] *= 0.2
            if name.endswith("running_var"):
                out[name] = out[name].abs() + 0.5
    return out


@pytest.fixture(scope="module")
def stylegan_weights():
    return random_weights(StyleGANNetwork(SMALL_STYLEGAN))


@pytest.fixture(scope="module")
def finegan_weights():
    return random_weights(FineGANNetwork(SMALL_FINEGAN))


def test_noise_is_normal_and_each_image_has_its_own():
    keys = image_keys(np.arange(200), seed=0, purpose="test", device=CPU)
    noise = normal(keys, 500)
    assert abs(float(noise.mean())) < 0.02
    assert float(noise.std()) == pytest.approx(1, abs=0.02)
    assert float(noise.pow(4).mean()) == pytest.approx(3, abs=0.15)
    assert torch.equal(normal(keys[7:9], 100, start=50), noise[7:9, 50:150])
    assert abs(float((noise[0] * noise[1]).mean())) < 0.15


def test_public_layouts_have_their_shapes():
    with torch.device("meta"):
        style, fine = StyleGANNetwork().state_dict(), FineGANNetwork().state_dict()
    assert len([name for name in style if name.startswith("g_mapping.")]) == 16
    assert style["g_synthesis.torgb.weight"].shape == (3, 16, 1, 1)
    assert style["g_synthesis.blocks.4x4.const"].shape == (1, 512, 4, 4)
    assert style["g_synthesis.blocks.64x64.conv0_up.weight"].shape == (256, 512, 3, 3)
    assert style["g_synthesis.blocks.1024x1024.epi2.style_mod.lin.weight"].shape == (32, 512)
    assert style["g_synthesis.blocks.1024x1024.conv0_up.intermediate.kernel"].shape == (1, 1, 3, 3)
    assert style["g_synthesis.blocks.8x8.epi1.top_epi.noise.weight"].shape == (512,)
    assert fine["h_net1_bg.fc.0.weight"].shape == (32768, 300)
    assert fine["h_net1.upsample5.1.weight"].shape == (128, 64, 3, 3)
    assert fine["h_net2.jointConv.0.weight"].shape == (128, 84, 3, 3)
    assert fine["h_net3.residual.1.block.4.running_var"].shape == (32,)
    assert fine["img_net3_mask.img.0.weight"].shape == (1, 16, 3, 3)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_stylegan_loads_and_makes_images(stylegan_weights, tmp_path, suffix):
    path = tmp_path / f"stylegan{suffix}"
    if suffix == ".pt":
        torch.save(stylegan_weights, path)
    else:
        save_tensors(path, stylegan_weights)
    made = StyleGAN.load(path, image_size=12, device=CPU, resolution=SMALL_STYLEGAN)
    images = made.generate(np.array([0, 1, 2]), seed=3)
    assert images.shape == (3, 12, 12, 3)
    assert images.dtype == torch.uint8
    assert images.float().std() > 5
    again = made.generate(np.array([2]), seed=3)
    assert (again.int() - images[2].int()).abs().max() <= 1  # whatever the batch
    assert not torch.equal(made.generate(np.array([2]), seed=4), again)


def test_stylegan_computes_what_its_description_says(stylegan_weights):
    """The first block and the colours, computed with plain operations."""
    network = StyleGANNetwork(4)
    weights = {name: value for name, value in stylegan_weights.items() if name in network.state_dict()}
    weights["g_synthesis.torgb.weight"] = torch.randn(3, 512, 1, 1, generator=torch.Generator().manual_seed(1))
    network.load_state_dict(weights)
    keys = image_keys(np.arange(2), seed=0, purpose="stylegan", device=CPU)
    z = normal(keys, 512)
    w = z / (z.square().mean(1, keepdim=True) + 1e-8).sqrt()
    for n in range(8):
        scale = np.sqrt(2) / np.sqrt(512) * 0.01
        w = w @ (weights[f"g_mapping.dense{n}.weight"].T * scale) + weights[f"g_mapping.dense{n}.bias"] * 0.01
        w = torch.where(w > 0, w, 0.2 * w)
    block = "g_synthesis.blocks.4x4."
    noise = normal(keys, 32, start=512).reshape(2, 2, 1, 4, 4)
    x = weights[block + "const"] + weights[block + "bias"].reshape(1, -1, 1, 1)
    for n, part in enumerate(("epi1", "epi2")):
        if n:
            kernel = weights[block + "conv.weight"] * np.sqrt(2) / np.sqrt(512 * 9)
            x = F.conv2d(x, kernel, weights[block + "conv.bias"], padding=1)
        x = x + weights[f"{block}{part}.top_epi.noise.weight"].reshape(1, -1, 1, 1) * noise[:, n]
        x = torch.where(x > 0, x, 0.2 * x)
        mean, variance = x.mean((2, 3), keepdim=True), x.var((2, 3), correction=0, keepdim=True)
        x = (x - mean) / (variance + 1e-5).sqrt()
        style = w @ weights[f"{block}{part}.style_mod.lin.weight"].T / np.sqrt(512)
        style = style + weights[f"{block}{part}.style_mod.lin.bias"]
        x = x * (style[:, :512, None, None] + 1) + style[:, 512:, None, None]
    kernel = weights["g_synthesis.torgb.weight"][:, :, 0, 0] / np.sqrt(512)
    expected = torch.einsum("oc,nchw->nohw", kernel, x) + weights["g_synthesis.torgb.bias"].reshape(1, 3, 1, 1)
    assert torch.allclose(network(z, keys), expected, rtol=1e-3, atol=1e-3)


def test_narrow_maps_are_doubled_by_the_fused_convolution():
    layer = stylegan._UpConvolution(3, 5)
    x = torch.randn(1, 5, 4, 4)
    weight = layer.weight * np.sqrt(2) / np.sqrt(45)
    kernel = torch.zeros(5, 3, 4, 4)
    for down in range(2):
        for right in range(2):
            kernel[:, :, down : down + 3, right : right + 3] += weight.transpose(0, 1)
    spread = torch.zeros(1, 3, 10, 10)
    for row in range(4):
        for column in range(4):
            part = torch.einsum("c,cohw->ohw", x[0, :, row, column], kernel)
            spread[0, :, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4] += part
    line = torch.tensor([1.0, 2.0, 1.0])
    blur = (line[:, None] * line / 16).expand(3, 1, 3, 3)
    expected = F.conv2d(spread[..., 1:-1, 1:-1], blur, padding=1, groups=3) + layer.bias.reshape(1, 3, 1, 1)
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_finegan_loads_and_makes_images(finegan_weights, tmp_path):
    path = tmp_path / "finegan.pt"
    prefixed = {
        f"module.{name}": value for name, value in finegan_weights.items() if not name.endswith("num_batches_tracked")
    }
    torch.save({**prefixed, "module.other.weight": torch.zeros(2)}, path)
    made = FineGAN.load(path, image_size=128, device=CPU, width=SMALL_FINEGAN)
    images = made.generate(np.array([0, 1]), seed=3)
    assert images.shape == (2, 128, 128, 3)
    assert not torch.equal(images[0], images[1])
    assert (made.generate(np.array([1]), seed=3)[0].int() - images[1].int()).abs().max() <= 1


def test_finegan_lays_child_over_parent_over_background(finegan_weights):
    network = FineGANNetwork(SMALL_FINEGAN).eval()
    network.load_state_dict(finegan_weights)
    z, fine = torch.randn(2, 100), torch.tensor([37, 199])
    with torch.no_grad():
        image = network(z, fine)
        child, parent = torch.zeros(2, 200), torch.zeros(2, 20)
        child[[0, 1], fine] = 1
        parent[[0, 1], [3, 19]] = 1
        start = torch.cat([parent, z], 1)
        flat = network.h_net1.fc[1](start @ finegan_weights["h_net1.fc.0.weight"].T)
        half = flat.shape[1] // 2
        x = (flat[:, :half] * torch.sigmoid(flat[:, half:])).reshape(2, SMALL_FINEGAN, 4, 4)
        for n in range(1, 6):
            x = getattr(network.h_net1, f"upsample{n}")(x)
        assert x.shape == (2, SMALL_FINEGAN // 16, 128, 128)
        parent_map = network.h_net2(x, parent)
        child_map = network.h_net3(parent_map, child)
        behind = network.img_net1_bg(network.h_net1_bg(child, z))
        for name, maps in (("img_net2", parent_map), ("img_net3", child_map)):
            front, shown = getattr(network, name)(maps), getattr(network, f"{name}_mask")(maps)
            behind = shown * front + (1 - shown) * behind
    assert torch.allclose(image, behind, atol=1e-5)
    assert image.abs().max() <= 1


@pytest.mark.parametrize("which", ["stylegan", "finegan"])
def test_wrong_weights_are_refused_by_name(which, stylegan_weights, finegan_weights, tmp_path):
    weights = dict(stylegan_weights if which == "stylegan" else finegan_weights)
    name = "g_synthesis.blocks.8x8.conv1.bias" if which == "stylegan" else "h_net2.samesample.1.running_mean"

    def load(tensors, file="weights.safetensors"):
        save_tensors(tmp_path / file, tensors)
        if which == "stylegan":
            return StyleGAN.load(tmp_path / file, image_size=16, device=CPU, resolution=SMALL_STYLEGAN)
        return FineGAN.load(tmp_path / file, image_size=16, device=CPU, width=SMALL_FINEGAN)

    with pytest.raises(InputError, match=f"has no tensor '{name}'"):
        load({key: value for key, value in weights.items() if key != name})
    with pytest.raises(InputError, match=f"tensor '{name}' has the shape \\(3,\\)"):
        load({**weights, name: torch.zeros(3)})


def test_truncated_or_pickled_files_are_refused(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(InputError, match="not a complete state dict"):
        StyleGAN.load(path, image_size=16, device=CPU, resolution=8)
    torch.save(nn.Linear(2, 2), path)  # a pickled object
    with pytest.raises(InputError, match="not a complete state dict of plain tensors"):
        StyleGAN.load(path, image_size=16, device=CPU, resolution=8)
    torch.save([torch.zeros(2)], path)
    with pytest.raises(InputError, match="does not hold tensors by name"):
        FineGAN.load(path, image_size=16, device=CPU, width=32)
    assert finegan.CLASSES == 200


class Toy(nn.Module):
    def forward(self, z):
        return torch.tanh(z[:, :, None, None].expand(-1, 3, 8, 8))


def onnx_file(path, *, batch="n", latent=3, nodes=None, weights=()):
    """The network of `Toy`, or of other `nodes`, as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    shape = onnx.numpy_helper.from_array(np.array([1, 1, 8, 8]), "shape")
    axes = onnx.numpy_helper.from_array(np.array([2, 3]), "axes")
    graph = make.make_graph(
        nodes
        or [
            make.make_node("Unsqueeze", ["z", "axes"], ["high"]),
            make.make_node("Expand", ["high", "shape"], ["wide"]),
            make.make_node("Tanh", ["wide"], ["image"]),
        ],
        "toy",
        [make.make_tensor_value_info("z", kind, [batch, latent])],
        [make.make_tensor_value_info("image", kind, None)],
        [shape, axes, *weights],
    )
    opset = [make.make_opsetid("", 18)]
    path.write_bytes(make.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())
    return path


@pytest.mark.parametrize("batch", ["n", 1, 2, 64])
def test_an_onnx_file_makes_images_whatever_its_own_batch(tmp_path, batch):
    made = Exported(onnx_file(tmp_path / "toy.onnx", batch=batch), latent=3, image_size=8, device=CPU)
    images = made.generate(np.arange(5), seed=1)
    keys = image_keys(np.arange(5), seed=1, purpose="exported", device=CPU)
    expected = torch.tanh(normal(keys, 3)).double().add(1).mul(127.5).round().byte()
    assert images.shape == (5, 8, 8, 3)
    assert torch.equal(images, expected[:, None, None].expand(5, 8, 8, 3))
    assert torch.equal(made.generate(np.array([4, 2]), seed=1), images[[4, 2]])


def test_fingerprint_of_an_onnx_file_is_its_content(tmp_path):
    first = Exported(onnx_file(tmp_path / "a.onnx"), latent=3, image_size=8, device=CPU)
    again = Exported(onnx_file(tmp_path / "b.onnx"), latent=3, image_size=8, device=CPU)
    other = Exported(onnx_file(tmp_path / "c.onnx", batch=4), latent=3, image_size=8, device=CPU)
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_an_onnx_file_that_does_not_fit_is_refused_in_a_sentence(tmp_path):
    def refused(sentence, path, latent=3):
        with pytest.raises(InputError, match=sentence):
            Exported(path, latent=latent, image_size=8, device=CPU).generate(np.arange(2), seed=0)

    onnx = pytest.importorskip("onnx")
    refused(
        r"must take one float32 input \[n, 5\], but its inputs are z: .*--bank\.latent",
        onnx_file(tmp_path / "a.onnx"),
        5,
    )
    (tmp_path / "not.onnx").write_bytes(b"nothing")
    refused(r"not\.onnx is not a whole ONNX network", tmp_path / "not.onnx")
    flat = [onnx.helper.make_node("Tanh", ["z"], ["image"])]
    refused(r"must give images \[n, 3, H, W\] .* of shape \(2, 3\)", onnx_file(tmp_path / "flat.onnx", nodes=flat))
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(r"Cannot read .*pipe\.onnx \(not a regular file\)", tmp_path / "pipe.onnx")


def test_an_onnx_file_reads_no_other_file(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    (tmp_path / "secret").write_bytes(np.ones(3, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    for n, place in enumerate(["secret", f"../{tmp_path.name}/secret", str(tmp_path / "secret")]):
        weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3])
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=place)
        nodes = [onnx.helper.make_node("Add", ["z", "w"], ["image"])]
        path = onnx_file(tmp_path / f"{n}.onnx", nodes=nodes, weights=[weight])
        with pytest.raises(InputError, match=r"with its weights inside .*external_data=False"):
            Exported(path, latent=3, image_size=8, device=CPU)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["toy.pt2", "toy.ts", "toy.pt"])
def test_files_that_can_run_code_are_not_opened(tmp_path, monkeypatch, name):
    """Not even a valid one: torch.export.load evaluates the file's expressions before any check is possible."""
    if name == "toy.pt2":
        torch.export.save(torch.export.export(Toy(), (torch.zeros(4, 3),)), tmp_path / name)
    else:
        torch.jit.save(torch.jit.script(Toy()), str(tmp_path / name))
    for loader in (torch.export, torch.jit, torch):
        monkeypatch.setattr(loader, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match=rf"{name} is not an \.onnx file; .* can run code .* torch\.onnx\.export"):
        Exported(tmp_path / name, latent=3, image_size=8, device=CPU)


PARTS = {"unet": ["diffusers", "UNet2DModel"], "scheduler": ["diffusers", "DDPMScheduler"]}


@pytest.mark.parametrize(
    ("index", "code", "sentence"),
    [
        ({"_class_name": ["evil", "Evil"], **PARTS}, "evil.py", "must name one of diffusers' own pipelines"),
        ({"_class_name": "DDPMPipeline", **PARTS}, "None.py", r"None\.py is Python code"),
        ({"_class_name": "DDPMPipeline", **PARTS}, "unet/diffusers.py", r"diffusers\.py is Python code"),
        ({"_class_name": "DDPMPipeline", "unet": ["evil", "Evil"]}, "unet/evil.py", r"unet is \['evil', 'Evil'\]"),
        ({"_class_name": "DDPMPipeline", "unet": ["antigravity", "x"]}, None, "no other code"),
        ({"_class_name": "DDPMPipeline", "unet": "xy"}, None, "unet is 'xy'"),
        ({"_class_name": "DDPMPipeline", "unet": {"this": 1, "x": 2}}, None, "no other code"),
        ([], None, "must name one of diffusers' own pipelines"),
    ],
)
def test_a_diffusers_folder_with_code_is_refused_before_diffusers_sees_it(tmp_path, index, code, sentence):
    (tmp_path / "unet").mkdir()
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    if code is not None:
        (tmp_path / code).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    with pytest.raises(InputError, match=sentence):
        Diffusers(tmp_path, image_size=8, device=CPU)
    assert not (tmp_path / "sprung").exists()


def small_pipeline():
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D")}
    unet = diffusers.UNet2DModel(
        sample_size=8, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8, **blocks
    )
    return diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler(num_train_timesteps=50))


def test_a_diffusers_pipeline_makes_images(tmp_path):
    small_pipeline().save_pretrained(tmp_path, safe_serialization=True)
    made = Diffusers(tmp_path, image_size=8, device=CPU)
    images = made.generate(np.arange(2), seed=0)
    assert images.shape == (2, 8, 8, 3)
    assert not torch.equal(images[0], images[1])


def test_a_diffusers_pipeline_with_pickled_weights_is_refused(tmp_path):
    small_pipeline().save_pretrained(tmp_path, safe_serialization=False)
    with pytest.raises(InputError, match="is not a diffusers pipeline with safetensors weights"):
        Diffusers(tmp_path, image_size=8, device=CPU)


def test_training_images_come_first_as_they_are_then_changed(task):
    rows = task.rows("posterior")[:10]
    made = TrainingImages(task, rows, shift=3, colour=0.1)
    first = made.generate(np.arange(10), seed=0)
    assert np.array_equal(first.numpy(), task.images[rows])
    later = made.generate(np.array([13, 23, 33]), seed=0)
    original = task.images[rows[3]].astype(int)
    for image in later.numpy().astype(int):
        assert image.shape == original.shape
        assert not np.array_equal(image, original)
    assert torch.equal(made.generate(np.array([23]), seed=0)[0], later[1])
    assert not torch.equal(made.generate(np.array([23]), seed=1)[0], later[1])
    plain = TrainingImages(task, rows, shift=0, colour=0.0).generate(np.arange(10, 60), seed=0).numpy()
    sources = task.images[rows][np.arange(50) % 10]
    mirrored = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(plain, sources)])
    same = np.array([np.array_equal(a, b) for a, b in zip(plain, sources)])
    assert (mirrored | same).all()
    assert 10 < mirrored.sum() < 40


def test_digits_are_rendered_anew(task):
    made = Digits(image_size=32)
    images = made.generate(np.array([4, 9]), seed=0)
    assert images.shape == (2, 32, 32, 3)
    assert torch.equal(made.generate(np.array([9]), seed=0)[0], images[1])
    assert not torch.equal(made.generate(np.array([9]), seed=1)[0], images[1])


def test_folder_reads_pictures_in_order_and_names_a_broken_one(tmp_path):
    for n in range(3):
        (tmp_path / f"{n}").mkdir()
        Image.fromarray(np.full((20, 30, 3), 40 * n, np.uint8)).save(tmp_path / f"{n}" / "x.png")
    (tmp_path / "0" / "._x.png").write_bytes(b"a Mac's notes")
    made = Folder(tmp_path, image_size=16)
    assert made.count == 3
    assert made.generate(np.array([2, 0]), seed=0)[:, 8, 8, 0].tolist() == [80, 0]
    (tmp_path / "1" / "x.png").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"x\.png can't be read as a picture"):
        made.generate(np.array([1]), seed=0)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no pictures"):
        Folder(tmp_path / "none", image_size=16)


def test_a_generator_without_its_source_says_what_it_needs(task, tmp_path):
    with pytest.raises(InputError, match="'stylegan' needs its public weights; give --generator-path"):
        make_generator(BankConfig(generator="stylegan"), task=task)
    with pytest.raises(InputError, match=r"There is no .*nowhere; give --generator-path a folder of pictures"):
        make_generator(BankConfig(generator="folder"), task=task, path=tmp_path / "nowhere")


def test_diffusers_is_an_extra(task, tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "DDPMPipeline", **PARTS}))
    try:
        import diffusers  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match=r"pip install 'nogs\[diffusers\]'"):
            make_generator(BankConfig(generator="diffusers"), task=task, path=tmp_path)
    else:
        pytest.skip("diffusers is installed")


def test_a_pipe_among_the_pictures_of_a_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match=r"pipe\.png can't be read as a picture \(not a regular file\)"):
        Folder(tmp_path, image_size=8).generate(np.arange(1), seed=0)


def test_a_pipe_is_no_source(task, tmp_path):
    os.mkfifo(tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"weights\.pt is not a regular file; give --generator-path its"):
        make_generator(BankConfig(generator="stylegan"), task=task, path=tmp_path / "weights.pt")
