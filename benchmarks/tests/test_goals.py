"""The judge of the goals, on cells whose verdicts are known."""

from harness import goals, report
from harness.operations import COPY_LOSS, CROSS_ENTROPY, MEMCPY, SOFTMAX


def cell(operation, seconds, shape=(256, 4096), name="normal", threads=1):
    return {"operation": operation, "seconds": seconds, "shape": shape, "input": name, "threads": threads}


def verdict(cells, operation, inputs):
    (found,) = [v for v in goals.judge(cells) if v["operation"] == operation and v["inputs"] == inputs]
    return found


def test_a_cell_within_reach_that_misses_decides():
    # 0.7 where a copy takes 0.6: beyond reach of 0.5. 0.55 where a copy takes 0.2: missed, though it is less.
    cells = [cell(SOFTMAX, 1.0), cell(MEMCPY, 0.6), cell("softmax forward", 0.7)]
    narrow = (4096, 64)
    cells += [cell(SOFTMAX, 1.0, narrow), cell(MEMCPY, 0.2, narrow), cell("softmax forward", 0.55, narrow)]
    found = verdict(cells, "softmax forward", "worst input")
    assert found["verdict"] == "missed" and found["ratio"] == 0.55 and found["floor"] == 0.2
    assert (found["cells"], found["met"], found["beyond"]) == (2, 0, 1)


def test_a_goal_is_out_of_reach_if_nothing_else_misses():
    cells = [cell(SOFTMAX, 1.0), cell(MEMCPY, 0.6), cell("softmax forward", 0.7)]
    found = verdict(cells, "softmax forward", "worst input")
    assert found["verdict"] == "out of reach" and found["ratio"] == 0.7
    # A floor above the limit does not matter to whoever meets it.
    faster = [cell(CROSS_ENTROPY, 1.0), cell(COPY_LOSS, 0.2), cell("sparsemax loss", 0.14)]
    assert verdict(faster, "sparsemax and entmax15 loss", "scale ≥ 1")["verdict"] == "met"


def test_what_was_not_measured_is_not_judged():
    found = verdict([cell("softmax forward", 0.1)], "softmax forward", "worst input")
    assert found["verdict"] == "not measured" and found["cells"] == 0
    two = [cell(SOFTMAX, 1.0, threads=2), cell("softmax forward", 0.1, threads=2)]
    assert verdict(two, "softmax forward", "worst input")["verdict"] == "not measured"


def test_the_table_has_a_line_a_goal():
    cells = [cell(SOFTMAX, 1.0), cell(MEMCPY, 0.1), cell("softmax forward", 0.3)]
    table = report._goals({"goals": goals.judge(cells)}).splitlines()
    assert len(table) == 2 + len(goals.GOALS)
    assert "0.30" in table[2] and "1 of 1" in table[2] and "met" in table[2]
