"""The noise rule of core/measure/rounds.h for rows that a script measures."""
import statistics

SPREAD = 1.25


def is_noisy(median, least, repeats):
    return repeats >= 3 and median > SPREAD * least


def timing(seconds, scale=1.0):
    """The members of a row that say how long its passes took: seconds times scale."""
    median, least = statistics.median(seconds), min(seconds)
    return {"median_s": scale * median, "min_s": scale * least, "max_s": scale * max(seconds), "repeats": len(seconds),
            "noisy": is_noisy(median, least, len(seconds))}


def row_is_noisy(row):
    """What a row says of itself or, where it says nothing, what its median and minimum say."""
    return row.get("noisy", is_noisy(row["median_s"], row["min_s"], row.get("repeats", 3)))


def mark(row):
    return "~" if row_is_noisy(row) else ""
