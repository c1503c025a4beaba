"""Editors that run here: diffusers pipelines with tiny random weights, autoencoders, somebody's own function."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import inspect
import io
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from banana100_bench import raw
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.editors import Editor, EditRequest, open_editor
from banana100_bench.generate.initial import InitialImage

from .conftest import INITIAL, encode, pixels

WIDE = encode(np.asarray(Image.fromarray(pixels()).resize((140, 84))))  # neither side a multiple of 16
REQUEST = EditRequest(data=WIDE, prompt="again", round=1, seed=5)
WEIGHTS = Path(__file__).parents[2] / "../shared/weights"


def read(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(float)


# ---- diffusers ----------------------------------------------------------------------------------------------------


def _pix2pix(torch, diffusers):
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=16,
        in_channels=8,
        out_channels=4,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        norm_num_groups=4,
    )
    nothing = dict.fromkeys((*NO_TEXT[:2], "safety_checker", "feature_extractor", "image_encoder"))
    return diffusers.StableDiffusionInstructPix2PixPipeline(
        vae=vae, unet=unet, scheduler=diffusers.DDIMScheduler(), requires_safety_checker=False, **nothing
    )


def _kontext(torch, diffusers):
    transformer = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(4,) * 4,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=1,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.06,
    )
    nothing = dict.fromkeys((*NO_TEXT[:4], "image_encoder", "feature_extractor"))
    return diffusers.FluxKontextPipeline(
        vae=vae, transformer=transformer, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), **nothing
    )


def _flux2(torch, diffusers):
    transformer = diffusers.Flux2Transformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        timestep_guidance_channels=256,
        axes_dims_rope=(4, 4, 4, 4),
    )
    vae = diffusers.AutoencoderKLFlux2(
        block_out_channels=(4,) * 4, latent_channels=1, norm_num_groups=1, layers_per_block=1, sample_size=32
    )
    return diffusers.Flux2Pipeline(
        vae=vae,
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=None,
        tokenizer=None,
    )


def _qwen(torch, diffusers):
    transformer = diffusers.QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
    )
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=8, z_dim=4, num_res_blocks=1, latents_mean=[0.0] * 4, latents_std=[1.0] * 4
    )
    return diffusers.QwenImageEditPlusPipeline(
        vae=vae,
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=None,
        tokenizer=None,
        processor=None,
    )


NO_TEXT = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2", "processor")


def _texts(torch, kind):
    """In place of the text encoders, which nobody makes tiny: the same embedding for every prompt."""
    words = torch.randn(1, 7, 32, generator=torch.Generator().manual_seed(1))
    return {
        "instruct-pix2pix": ("_encode_prompt", lambda *_, **__: words[..., :16].repeat(3, 1, 1)),
        "flux-kontext": ("encode_prompt", lambda *_, **__: (words, words[:, 0], torch.zeros(7, 3))),
        "flux2": ("encode_prompt", lambda *_, **__: (words, torch.zeros(1, 7, 4))),
        "qwen-image-edit": ("encode_prompt", lambda *_, **__: (words, torch.ones(1, 7, dtype=torch.int64))),
    }[kind]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "make", "small", "working", "output"),
    [
        ("instruct-pix2pix", _pix2pix, {}, (136, 80), (136, 80)),
        ("flux-kontext", _kontext, {"max_area": 64 * 64}, (96, 48), (80, 48)),
        ("flux2", _flux2, {}, (128, 80), (128, 80)),
        ("qwen-image-edit", _qwen, {"width": 64, "height": 32}, (96, 64), (64, 32)),
    ],
)
def test_a_pipeline_edits_repeatably_and_tells_its_sizes(tmp_path, monkeypatch, kind, make, small, working, output):
    torch = pytest.importorskip("torch", reason="needs torch")
    diffusers = pytest.importorskip("diffusers", reason="needs diffusers (the extra diffusers)")
    from diffusers.pipelines.flux import pipeline_flux_kontext
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus

    from banana100_bench.generate.editors import diffusers as ours

    monkeypatch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", [(64, 64), (96, 48)])
    monkeypatch.setattr(pipeline_qwenimage_edit_plus, "VAE_IMAGE_SIZE", 80 * 80)
    monkeypatch.setattr(pipeline_qwenimage_edit_plus, "CONDITION_IMAGE_SIZE", 64 * 64)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make(torch, diffusers).save_pretrained(tmp_path / "tiny-weights")
    kinds = ours.KINDS[kind]
    monkeypatch.setitem(ours.KINDS, kind, dataclasses.replace(kinds, extra={**kinds.extra, **small}))
    pipeline = getattr(diffusers, kinds.pipeline)
    monkeypatch.setattr(pipeline, *_texts(torch, kind))
    takes = inspect.signature(pipeline.__init__).parameters
    nothing = {
        name: None for name in (*NO_TEXT, "safety_checker", "feature_extractor", "image_encoder") if name in takes
    }
    monkeypatch.setattr(pipeline, "from_pretrained", functools.partial(pipeline.from_pretrained, **nothing))

    editor = open_editor(f"{kind}:{tmp_path / 'tiny-weights'}", {"steps": "2", "device": "cpu"})
    assert (editor.name, editor.simulated) == ("tiny-weights", False)
    assert editor.model_version.endswith(f"tiny-weights@main; 2 steps, {kinds.guidance[0]} {kinds.guidance[1]:g}")
    editor.open()
    one, same = editor.edit(REQUEST), editor.edit(REQUEST)
    other = editor.edit(dataclasses.replace(REQUEST, seed=6))
    assert one.data == same.data != other.data
    assert Image.open(io.BytesIO(one.data)).size == output
    assert one.told == {"working_width": working[0], "working_height": working[1]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": "0"}, "steps '0': expected 1 to 1000"),
        ({"guidance": "much"}, "guidance 'much': expected 0 to 100"),
        ({"dtype": "int8"}, "dtype 'int8': choices: float32, float16, bfloat16"),
        ({"offload": "disk"}, "offload 'disk': choices: none, model, sequential"),
        ({"step": "3"}, "unknown option of editor flux2 'step'; did you mean steps"),
    ],
)
def test_bad_pipeline_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        open_editor("flux2", options)


def test_pipelines_refuse_what_they_would_ignore(tmp_path):
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    for what, message in (
        ({"settings": ["multi_turn"]}, "FLUX.2-dev has no chat|flux.2-dev has no chat"),
        ({"settings": ["temperature"]}, r"temperature 0\.0: flux\.2-dev has no temperature \(setting temperature\)"),
        ({"resolution": "2K"}, "resolution '2K': flux.2-dev has no resolution"),
    ):
        with pytest.raises(UsageError, match=message):
            generate("flux2", [initial], tmp_path / "out", **what)
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_there_are_named_before_anything_is_written(tmp_path):
    pytest.importorskip("diffusers", reason="needs diffusers (the extra diffusers)")
    (tmp_path / "empty").mkdir()
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    for spec in (f"flux2:{tmp_path}/empty", f"autoencoder:{tmp_path}/empty"):
        with pytest.raises(BananaError, match=f"{tmp_path}/empty: "):
            generate(spec, [initial], tmp_path / "out", seed=None, rounds=1)
    assert not (tmp_path / "out").exists()


# ---- autoencoders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["AutoencoderTiny", "AutoencoderKL"])
def test_an_autoencoder_of_diffusers_makes_round_trips(tmp_path, kind):
    torch = pytest.importorskip("torch", reason="needs torch")
    diffusers = pytest.importorskip("diffusers", reason="needs diffusers (the extra diffusers)")
    torch.manual_seed(0)
    small = {
        "AutoencoderTiny": {
            "encoder_block_out_channels": (8,) * 4,
            "decoder_block_out_channels": (8,) * 4,
            "num_encoder_blocks": (1,) * 4,
            "num_decoder_blocks": (1,) * 4,
        },
        "AutoencoderKL": {"block_out_channels": (4,), "norm_num_groups": 1},
    }[kind]
    getattr(diffusers, kind)(**small).save_pretrained(tmp_path / "ae")
    editor = open_editor(f"autoencoder:{tmp_path}/ae")
    made = editor.edit(dataclasses.replace(REQUEST, seed=None))  # opens itself
    assert made.data == editor.edit(dataclasses.replace(REQUEST, seed=None)).data
    assert read(made.data).shape == (84, 140, 3)
    assert made.told == {"working_width": 144, "working_height": 96}
    assert editor.simulated


def test_the_tiny_flux2_autoencoder_keeps_a_photograph_and_wears_it_down(tmp_path):
    pytest.importorskip("diffusers", reason="needs diffusers (the extra diffusers)")
    if not (WEIGHTS / "taef2_encoder.pth").exists():
        pytest.skip("needs ../shared/weights")
    from banana100_bench.generate.initial import open_initial

    initial = open_initial(["photos:china"], 128)
    report = generate(f"autoencoder:{WEIGHTS}", initial, tmp_path, seed=None, repetitions=1, rounds=6)
    assert (report.made, report.simulated, report.drifted) == (6, True, 0)
    found, entries = raw.read_run(raw.run_folders(tmp_path)[0])
    assert found.run_id == "replication__china__autoencoder-taef2__rep0"
    assert found.model_version == "autoencoder-taef2 d454a9fa42ce float32"
    before = read(initial[0].data)
    psnr = [10 * np.log10(255**2 / np.mean((read(entry.read()) - before) ** 2)) for entry in entries]
    assert psnr[0] > 22  # the weights fit the network: a wrong layer gives below 15
    assert psnr == sorted(psnr, reverse=True)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"seed": 0}, "seed 0: an autoencoder has no seed; pass --seed none, and --repetitions 1"),
        ({"seed": None, "settings": ["mirror"]}, "setting 'mirror': an autoencoder reads no prompt"),
    ],
)
def test_an_autoencoder_refuses_what_it_would_ignore(tmp_path, what, message):
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    with pytest.raises(UsageError, match=message):
        generate(f"autoencoder:{tmp_path}", [initial], tmp_path / "out", **what)
    with pytest.raises(UsageError, match="name the weights"):
        open_editor("autoencoder")


# ---- one's own ----------------------------------------------------------------------------------------------------

OWN = """
from PIL import ImageOps
from banana100_bench.generate.editors import Edited, Editor

def invert(picture, prompt):
    return ImageOps.invert(picture)

def seeded(picture, prompt, seed):
    return picture.point(lambda value: (value + seed) % 256)

def wrong(picture, prompt):
    return 3

class Mine(Editor):
    name, model_version, simulated = "mine", "1", True
    def __init__(self, strength="1"):
        self.strength = int(strength)
    def edit(self, request):
        return Edited(data=request.data, told={"strength": self.strength})

invert.simulated = True
number = 4
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


def test_a_function_is_an_editor(own, tmp_path):
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    report = generate(f"{own}:invert", [initial], tmp_path / "out", repetitions=1, rounds=2)
    assert report.simulated
    found, entries = raw.read_run(raw.run_folders(tmp_path / "out")[0])
    assert found.editor == "invert"
    assert found.model_version.startswith("own.py:invert@")
    assert np.array_equal(read(entries[0].read()), 255 - pixels())
    assert np.array_equal(read(entries[1].read()), pixels())
    made = open_editor(f"{own}:seeded").edit(EditRequest(data=INITIAL, prompt="p", round=1, seed=3))
    assert np.array_equal(read(made.data), (pixels().astype(int) + 3) % 256)


def test_an_edited_file_is_another_version(own):
    before = open_editor(f"{own}:invert").model_version
    Path(own).write_text(OWN + "\n# changed\n")
    assert open_editor(f"{own}:invert").model_version != before


def test_an_edit_of_what_its_file_imports_is_another_version(own, tmp_path):
    """Each in a process of its own, as two calls of the command line are."""
    Path(own).write_text("import deeper_editor_test\n" + OWN)
    (tmp_path / "deeper_editor_test.py").write_text("import deepest_editor_test\n")
    program = (
        "import sys; from banana100_bench.generate.editors import open_editor; "
        f"print(open_editor({own + ':invert'!r}).model_version)"
    )
    versions = []
    for text in ("a = 1\n", "a = 2\n", "a = 2\n"):
        (tmp_path / "deepest_editor_test.py").write_text(text)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        versions.append(done.stdout.strip())
    assert versions[0].startswith("own.py:invert@")
    assert versions[0] != versions[1] == versions[2]


def test_a_file_that_imports_nothing_of_its_own_has_its_own_hash_as_version(own):
    assert open_editor(f"{own}:invert").model_version == f"own.py:invert@{sha256_file(Path(own))[:12]}"


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ("__import__('sys').exit(0)", "SystemExit: 0"),
        ("__import__('os')._exit(0)", r"SystemExit: it called os\._exit\(0\)"),
        ("__import__('posix')._exit(0)", r"SystemExit: it called os\._exit\(0\)"),
    ],
)
def test_an_editor_that_ends_the_process_fails_its_runs_and_no_more(tmp_path, ends, message):
    (tmp_path / "ending.py").write_text(
        "from banana100_bench.generate.editors import Editor\n\n"
        f"def stop(picture, prompt, seed):\n    if seed == 1:\n        {ends}\n    return picture\n\n"
        f"class Mine(Editor):\n    def __init__(self):\n        {ends}\n    def edit(self, request):\n        pass\n"
    )
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    with pytest.raises(BananaError, match=f"1 of 2 runs failed: replication__ramp__stop__rep1: {message}"):
        generate(f"{tmp_path}/ending.py:stop", [initial], tmp_path / "out", repetitions=2, rounds=1)
    assert [len(raw.read_run(folder)[1]) for folder in raw.run_folders(tmp_path / "out")] == [1, 0]
    with pytest.raises(BananaError, match=f"ending.py:Mine: {message}"):
        open_editor(f"{tmp_path}/ending.py:Mine")


def test_a_function_whose_name_makes_no_editor_name_is_refused(tmp_path):
    (tmp_path / "own.py").write_text("def _(picture, prompt):\n    return picture\n")
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    with pytest.raises(UsageError, match="editor '': expected at most 80"):
        generate(f"{tmp_path}/own.py:_", [initial], tmp_path / "out")


def test_a_class_takes_options(own):
    editor = open_editor(f"{own}:Mine", {"strength": "7"})
    assert (editor.name, editor.simulated) == ("mine", True)
    assert editor.edit(EditRequest(data=INITIAL, prompt="p", round=1)).told == {"strength": 7}


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("blur", {}, UsageError, "has no 'blur'; callables there: Edited, Editor, invert, seeded, wrong, Mine"),
        ("number", {}, UsageError, "expected a function or a subclass of Editor"),
        ("invert", {"a": "1"}, UsageError, "option 'a': editor .*own.py:invert takes none"),
        ("Mine", {"a": "1"}, BananaError, "TypeError: .*unexpected keyword argument 'a'"),
    ],
)
def test_what_is_no_editor_is_refused(own, name, options, error, message):
    with pytest.raises(error, match=message):
        open_editor(f"{own}:{name}", options)


def test_a_file_that_fails_is_named(own, tmp_path):
    with pytest.raises(UsageError, match=r"no such file .*/none\.py"):
        open_editor(f"{tmp_path}/none.py:f")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(BananaError, match=r"cannot import .*/bad\.py: ZeroDivisionError"):
        open_editor(f"{tmp_path}/bad.py:f")


def test_an_editor_may_import_what_lies_beside_its_file(own, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_editor_test.py").write_text("def blur(image, prompt): return image\n")
    (tmp_path / "main.py").write_text("from beside_editor_test import blur\n")
    made = open_editor(f"{tmp_path}/main.py:blur").edit(EditRequest(data=INITIAL, prompt="p", round=1))
    assert np.array_equal(read(made.data), pixels())


def test_an_answer_of_another_type_fails_the_run(own, tmp_path, caplog):
    initial = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
    with caplog.at_level(logging.WARNING), pytest.raises(BananaError, match="wrong returned int, expected a PIL image"):
        generate(f"{own}:wrong", [initial], tmp_path / "out", repetitions=1, rounds=1)


def test_an_entry_point_is_an_editor(monkeypatch, own):
    found = {"theirs": lambda options: open_editor(f"{own}:Mine", options), "broken": lambda options: 3}

    class Point:
        def __init__(self, name):
            self.name = name

        def load(self):
            return found[self.name]

    def entry_points(group):
        assert group == "banana100_bench.editors"
        return [Point(name) for name in found]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert isinstance(open_editor("theirs", {"strength": "2"}), Editor)
    with pytest.raises(BananaError, match="editor broken: its entry point gave int, expected an Editor"):
        open_editor("broken")
    with pytest.raises(UsageError, match="unknown editor 'their'; did you mean theirs"):
        open_editor("their")
