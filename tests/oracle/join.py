"""Joins two runs of bench/scripts/oracle_accuracy.py by hand: python3 join.py FOLDER_OF_SCRIPTS.

Ten steps of 2 ms, projected 1 ms, and twenty of 5 ms, projected 4 ms: thirty steps of (10 * 2 + 20 * 5) / 30 = 4 ms, projected
(10 * 1 + 20 * 4) / 30 = 3 ms: an accuracy of 0.75. Computing takes (10 * 1.5 + 20 * 3) / 30 = 2.5 ms, exchanges 0.5 ms at best:
an accuracy of 1 - |3 - 3| / 3 = 1.
"""
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import oracle_accuracy  # noqa: E402


def row(steps, measured, predicted, computed, best, turns, commit):
    return {"model": "lenet5", "transport": "threads", "ranks": 2, "method": "filter", "commit": commit, "runs": 1, "residual": 1,
            "iterations": steps, "measured_s": measured, "predicted_s": predicted, "computed_s": computed, "noisy": False,
            "predicted_computed_s": computed, "measured_parts_s": {"forward": measured}, "measured_best_s": best,
            "predicted_phases_s": {"forward": predicted}, "measured_of_turns_s": turns,
            "predicted_of_turns_s": [predicted] * len(turns), "accuracy": 0, "accuracy_of_best": 0}


def near(found, expected):
    if not abs(found - expected) < 1e-12:
        sys.exit("%r, expected %r" % (found, expected))


first = row(10, 2e-3, 1e-3, 1.5e-3, 2e-3, [2e-3], "a")
second = row(20, 5e-3, 4e-3, 3e-3, 4e-3, [4.5e-3, 5.5e-3], "a")
rows, new = oracle_accuracy.merge([first], [second], True)
assert len(rows) == 1 and rows == new and rows[0]["runs"] == 2 and rows[0]["iterations"] == 30
for name, expected in (("measured_s", 4e-3), ("predicted_s", 3e-3), ("computed_s", 2.5e-3), ("accuracy", 0.75),
                       ("measured_best_s", 3e-3), ("accuracy_of_best", 1), ("median_s", 4.5e-3), ("min_s", 2e-3),
                       ("max_s", 5.5e-3), ("accuracy_of_medians", 1 - 0.5 / 4.5)):
    near(rows[0][name], expected)
near(rows[0]["measured_parts_s"]["forward"], 4e-3)
assert rows[0]["noisy"] and rows[0]["measured_of_turns_s"] == [2e-3, 4.5e-3, 5.5e-3]
assert "computing 2.50 ms" in rows[0]["reason"]

# Without --add, and of another commit, the new row stands in the old one's place; rows of other names stay.
other = {**first, "ranks": 4}
for made, add in ((second, False), ({**second, "commit": "b"}, True)):
    rows, new = oracle_accuracy.merge([first, other], [dict(made)], add)
    assert [r["ranks"] for r in rows] == [4, 2] and new[0]["runs"] == 1 and new[0]["measured_s"] == 5e-3
