"""A vision-language judge of real architecture, Qwen2.5-VL, as small as it gets and with random weights."""

import math

import pytest

from banana100_bench.engine.measure import measure
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models import open_model, vlm
from banana100_bench.models.base import ReplyError
from tests.models.making import picture, texture

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
           "<|video_pad|>"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The model as `save_pretrained` writes it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from tokenizers.decoders import ByteLevel

    path = tmp_path_factory.mktemp("vlm") / "tiny-judge"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteLevel()
    words = [f" {word} {word}" for word in vlm.LEVELS] * 20
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        words, trainers.BpeTrainer(special_tokens=SPECIAL, vocab_size=320, initial_alphabet=alphabet)
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.image_token, tokenizer.video_token = "<|image_pad|>", "<|video_pad|>"
    tokens = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
            "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"},
            "bos_token_id": tokens["<|endoftext|>"], "eos_token_id": tokens["<|im_end|>"],
            "pad_token_id": tokens["<|endoftext|>"],
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56,
            "fullatt_block_indexes": [0],
        },
        image_token_id=tokens["<|image_pad|>"], video_token_id=tokens["<|video_pad|>"],
        vision_start_token_id=tokens["<|vision_start|>"], vision_end_token_id=tokens["<|vision_end|>"],
    )  # fmt: skip
    torch.manual_seed(0)
    network = transformers.Qwen2_5_VLForConditionalGeneration(config)
    network.generation_config.eos_token_id = tokens["<|im_end|>"]
    network.save_pretrained(path)
    from transformers.models.qwen2_vl import Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    transformers.Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        tokenizer,
        Qwen2VLVideoProcessor(),
        chat_template=TEMPLATE,
    ).save_pretrained(path)
    return path


def test_levels_weigh_the_next_word(folder):
    model = open_model(f"vlm:{folder}", options={"parser": "levels"})
    first, second = measure(model, picture(texture(1, 56))), measure(model, picture(texture(2, 56)))
    assert first.status == "ok", first.message
    assert 1 < first.score < 5
    assert first.score != second.score
    assert measure(model, picture(texture(1, 56))).score == first.score  # greedy: the same each time
    info = model.info
    assert (info.id, info.kind, info.higher_is_better) == ("vlm:tiny-judge", "vlm", True)
    assert info.options["prompt"] == vlm.PROMPTS["levels"]
    assert len(info.weights_sha256) == 64
    assert info.versions["transformers"] == transformers.__version__


def test_a_level_is_the_mean_by_chance(folder):
    model = open_model(f"vlm:{folder}", options={"parser": "levels"})
    tokens = vlm._level_tokens(model.processor.tokenizer)
    logits = torch.full((400,), -5.0)
    logits[tokens[0]], logits[tokens[4]] = math.log(3.0), 0.0  # excellent three times as likely as bad
    weights = [3.0, *[math.exp(-5)] * 3, 1.0]
    expected = sum(w * level for w, level in zip(weights, vlm.LEVELS.values(), strict=True)) / sum(weights)
    assert model._level(logits) == pytest.approx(expected, abs=1e-6)


def test_a_reply_that_does_not_parse_is_a_failed_score_with_its_text(folder):
    model = open_model(f"vlm:{folder}", options={"max_new_tokens": "8", "prompt": "Rate it."})
    found = measure(model, picture(texture(1, 56)))  # random weights speak no <answer>
    assert (found.status, found.score) == ("parse_error", None)
    assert found.message.startswith("reply: ")
    assert measure(model, picture(texture(1, 56))).message == found.message


@pytest.mark.parametrize(
    ("reply", "parser", "score"),
    [
        ("<think>3 dots, 4 lines</think><answer>2.75</answer>", "answer", 2.75),
        ("<answer>1</answer> no: <answer> 4.5 </answer>", "answer", 4.5),
        ("I would say 3.5", "number", 3.5),
        ("4 of 5", "number", 5.0),
        ("-1", "number", None),
        ("<answer>7</answer>", "answer", None),
        ("<answer>3 or 4</answer>", "answer", None),
        ("the score is 4", "answer", None),
        ("<answer>good</answer>", "answer", None),
        ("", "number", None),
    ],
)
def test_what_a_reply_says(reply, parser, score):
    if score is None:
        with pytest.raises(ReplyError, match="^reply: "):
            vlm.parse(reply, parser, 1, 5)
    else:
        assert vlm.parse(reply, parser, 1, 5) == score


def test_calls_that_do_not_fit(folder, tmp_path):
    with pytest.raises(UsageError, match="unknown parser 'level'; did you mean levels"):
        open_model(f"vlm:{folder}", options={"parser": "level"})
    with pytest.raises(UsageError, match="unknown option of vlm:x 'temperature'"):
        open_model("vlm:x", options={"temperature": 1})
    with pytest.raises(UsageError, match="are numbers"):
        open_model("vlm:x", options={"lowest": "one"})
    with pytest.raises(BananaError, match=f"vlm:{tmp_path}: cannot be opened") as caught:
        open_model(f"vlm:{tmp_path}")
    assert "\n" not in str(caught.value)
