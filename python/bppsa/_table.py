"""The FLOPs of a module of PyTorch as a table with a row a layer: what `bppsa.torch.flops` returns."""
from __future__ import annotations

import csv
import io
import json
import os
import pathlib
from typing import Any, Mapping, Sequence

import numpy as np
from torch import nn

from . import _commands
from ._arrays import as_array
from ._graph import network
from ._native import RequestError

# Columns that are not added up.
_TEXTS = ("name", "operator", "class", "inputs", "input_shape", "output_shape", "channels_in_left", "channels_out_left")
_PASSES = (("forward", "forward"), ("to_input", "to the input"), ("to_weights", "to the weights"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _short(value: float) -> str:
    """The number with three digits and a prefix of 1000: "1.81 G"."""
    for factor, prefix in _PREFIXES:
        if value >= factor * 0.9995:
            return f"{value / factor:.3g} {prefix}" if value < 999.5 * factor else f"{value / factor:.0f} {prefix}"
    return f"{value:.0f}" if value else "-"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _sums(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"layers": len(rows)}
    for name in columns:
        found[name] = sum(row[name] for row in rows) if name != "density" else None
    if found.get("weight_count"):
        found["density"] = found["kept"] / found["weight_count"]
    return found


class Flops:
    """A table of FLOPs for one sample, with a row a layer. A FLOP is a multiplication or an addition, and a multiply-add (MAC) has
    two; counts by the rules of docs/flops.md.

    rows     dicts: "name", "operator", "class" ("matmul": convolutions and linear operators; "batch_norm", "sample_norm", "pool",
             "activation", "join", "move"), "inputs", "input_shape" and "output_shape" (C, H, W), "parameters", "weight_count",
             "kept", "density",
             "macs_*", "forward_*", "to_input_*" and "to_weights_*" (the gradients of the layer's input and of its weights), each
             *_dense      all weights at every output, the zeros of the padding too: what dense kernels compute, and what
                          torch.utils.flop_counter counts
             *_unpruned   all weights, without the padding
             *_pruned     the weights that are kept, without the padding
             *_shrunk     dense, without the channels that pruning leaves without use; "channels_in_left" and
                          "channels_out_left" say how many a layer keeps
    classes  the sums over the layers of each class
    total    the sums over all rows
    scan     the document of `bppsa flops` with the scan's "steps" and "totals"; None unless up_levels was given
    """

    def __init__(self, rows: list[dict[str, Any]], picture: str, scan: dict[str, Any] | None = None) -> None:
        self.rows, self.scan, self._picture = rows, scan, picture
        columns = [name for name in rows[0] if name not in _TEXTS] if rows else []
        present = dict.fromkeys(row["class"] for row in rows)
        self.classes = {name: _sums([row for row in rows if row["class"] == name], columns) for name in present}
        self.total = _sums(rows, columns)

    def only(self, *classes: str) -> Flops:
        """The table with the rows of these classes alone: only("matmul") leaves batch norms, pools and activations out."""
        for name in classes:
            if name not in self.classes:
                raise RequestError(f"only: '{name}', expected some of {', '.join(self.classes)}")
        return Flops([row for row in self.rows if row["class"] in classes], self._picture, self.scan)

    def __str__(self) -> str:
        width = max([len("all of activation"), *(len(row["name"]) for row in self.rows)])
        lines = [f"{'':{width + 55}}" + "".join(f"{title:>21}" for _, title in _PASSES),
                 f"{'layer':{width}}  {'operator':18}  {'output':14}{'weights':>10}{'density':>9}"
                 + f"{'dense':>11}{'pruned':>10}" * len(_PASSES)]
        for row in [*self.rows, *({"name": f"all of {name}", **sums} for name, sums in self.classes.items()),
                    {"name": "all", **self.total}]:
            density = "-" if row.get("density") is None else f"{row['density']:.4f}"
            lines.append(f"{row['name']:{width}}  {row.get('operator', ''):18}  {_shape(row.get('output_shape', ())):14}"
                         f"{row.get('weight_count') or '-':>10}{density:>9}"
                         + "".join(f"{_short(row.get(key + '_dense', 0)):>11}{_short(row.get(key + '_pruned', 0)):>10}"
                                   for key, _ in _PASSES))
        macs = [_short(self.total.get(f"macs_{kind}", 0)) for kind in ("dense", "pruned")]
        return "\n".join([*lines, f"multiply-adds forward (MACs), convolutions and linear: dense {macs[0]}, pruned {macs[1]}",
                          "dense: all weights, with the padding, as dense kernels and PyTorch count; pruned: the weights that are "
                          "kept, without the padding"])

    def csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows as CSV, which is written to the path if there is one."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.rows[0] if self.rows else _TEXTS)
        for row in self.rows:
            cells = {**row, "inputs": " ".join(row["inputs"]), "input_shape": _shape(row["input_shape"]),
                     "output_shape": _shape(row["output_shape"])}
            writer.writerow(["" if cell is None else cell for cell in cells.values()])
        return _written(text.getvalue(), path)

    def json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Rows, classes and total as a JSON document, which is written to the path if there is one."""
        return _written(json.dumps({"rows": self.rows, "classes": self.classes, "total": self.total}) + "\n", path)

    def svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture of all convolutions and linear operators, whose bars are the FLOPs of training them, dense and pruned, and, if
        up_levels was given, of the scan's steps above BP's; it is written to the path if there is one."""
        return _written(self._picture, path)


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    return text


def _masks(model: nn.Module, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Which weights of the layers stay: those that are not 0, and that a given mask keeps; only where some do not."""
    state, found = model.state_dict(), {}
    left = dict(given)
    for name in names:
        weight = state.get(f"{name}.weight")
        parts = [weight] if weight is not None else [state[f"{name}.weight_orig"], state[f"{name}.weight_mask"]]
        for key in (f"{name}.weight", f"{name}.weight_mask", name):
            if key in left:
                parts.append(left.pop(key))
        kept = np.ones(np.shape(as_array(name, parts[0])), dtype=bool)
        for part in parts:
            part = as_array(f"mask['{name}.weight']", part)
            if part.shape != kept.shape:
                raise RequestError(f"mask '{name}.weight': shape {list(part.shape)}, expected {list(kept.shape)}")
            kept &= part != 0
        if not kept.all():
            found[f"{name}.weight"] = kept
    for key in left:
        raise RequestError(f"mask '{key}': no weight of the model, expected one such as '{names[0]}.weight'")
    return found


def flops(model: nn.Module, example_input: Any, mask: Mapping[str, Any] | None = None, up_levels: int | str | None = None,
          **options: Any) -> Flops:
    """FLOPs of a model for one sample, with a row a layer: forward, and backward to the layer's input and to its weights, dense and
    of the weights that are kept. See Flops.

    model, example_input  as of network
    mask       arrays by the names of weights, "layer1.0.conv1.weight": weights whose mask is 0 are left out. Those that are 0, as
               torch.nn.utils.prune makes them, are left out in any case
    up_levels  count the scan too: its number of up-levels, or "auto". RequestError: its products do not fit into memory; the
               message has the bytes
    options    of `bppsa flops`: input_grad=True, memory_limit="4G", ..

    table = flops(model, torch.empty(1, 3, 224, 224))
    print(table.only("matmul"))
    table.csv("layers.csv"), table.svg("layers.svg")
    """
    graph = network(model, example_input)
    weighted = [layer["name"] for layer in graph["layers"] if layer["op"] in ("conv1d", "conv2d", "linear")]
    masks = _masks(model, weighted, mask or {})
    common = {**options, **({"mask": masks} if masks else {}), "json": True}

    def work(folder: _commands._Folder) -> Flops:
        words = ["flops", folder.word("network", graph)]
        picture = folder.path / "layers.svg"
        levels = "none" if up_levels is None else up_levels
        document = json.loads(_commands._run(folder, words, {**common, "up_levels": levels, "svg": picture}))
        drawn = picture.read_text(encoding="utf-8").replace(f"{folder.path}/network.json", type(model).__name__)
        return Flops(document["per_layer"], drawn, None if up_levels is None else document)

    return _commands.in_folder(work)
