"""Columns of the older form of logprobs."""

from gateway.answers.old_log import OldLog


def test_the_best_of_a_row_is_the_models_though_two_tokens_have_one_name() -> None:
    log = OldLog()
    log.begin("a", 0)
    log.add("b", -3.0, [("b", -0.1), ("c", -2.0)], 1)
    log.add("d", -0.5, [("d", -0.5)], 2)
    log.add("e", -4.0, [], 3)
    assert log.body() == {
        "tokens": ["a", "b", "d", "e"],
        "token_logprobs": [None, -3.0, -0.5, -4.0],
        "top_logprobs": [None, {"b": -0.1, "c": -2.0}, {"d": -0.5}, {"e": -4.0}],
        "text_offset": [0, 1, 2, 3],
    }


def test_two_are_joined_in_order_and_stay_as_they_were() -> None:
    first, second = OldLog(), OldLog()
    first.begin("a", 0)
    second.add("b", -1.0, [], 1)
    joined = first.join(second)
    assert joined.tokens == ["a", "b"]
    assert joined.token_logprobs == [None, -1.0]
    assert (first.tokens, second.text_offset) == (["a"], [1])
