from banana100_bench.errors import BananaError, UsageError, unknown_name


def test_near_names_come_first():
    assert str(unknown_name("model", "brisqe", ["brisque", "niqe", "piqe"])).startswith(
        "unknown model 'brisqe'; did you mean brisque"
    )


def test_without_a_near_name_the_choices_are_shown_up_to_a_limit():
    assert str(unknown_name("x", "zzz", ["b", "a", "c"], limit=2)) == "unknown x 'zzz'; choices: a, b (1 more)"


def test_exit_codes():
    assert (BananaError.exit_code, UsageError.exit_code) == (1, 2)
