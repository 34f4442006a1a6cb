#!/usr/bin/env python3
"""Compares what `bppsa flops` counts on random pruned graphs with a count over SciPy's sparse patterns.

    bench/rivals/flops_graph_scipy.py build/cpu/bppsa [--graphs N] [--json FILE]

For each of 80 (or N) random graphs, pruned to 30 .. 100 % of the weights, the patterns of all layers are made by visiting every
output and every weight; the live sets follow from the list of layers. A matrix between two live sets is V + U: U holds the ones of
tensors that live on, of values that only move (add, concat, slice, reshape, permute, flatten), V everything else. A normalisation
is two layers, as docs/networks.md says: its sums, and itself. (V + U)(W + X) has the entries of VW + VX + UW, those
that UX reaches twice or more, and the ones that it reaches once; it takes 2 FLOPs for each pair that VW adds up. Every step
that the program lists, by 0 up-levels to all, must have these FLOPs and so many entries; every operator, and BP with all
weights, too.

Exit code 0: all counts are equal; 1: not; 77: PyTorch or SciPy is not installed.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

try:
    import scipy.sparse as sp
except ImportError:
    print("scipy is not installed")
    sys.exit(77)

from grad_pytorch import np, save_safetensors, torch
from graphs import NORMS, inputs_of, of_seed


def window_pattern(layer, shape, out, mask):
    """Rows: inputs, columns: outputs. Visits every output and every tap; mask [out][channels of a group][kh][kw] or None."""
    (c, h, w), (co, oh, ow) = shape, out
    kh, kw = layer["kernel"]
    sh, sw = layer.get("stride", [1, 1] if layer["op"] == "conv2d" else layer["kernel"])
    top, _, left, _ = layer.get("padding", [0, 0, 0, 0])
    da, db = layer.get("dilation", [1, 1])
    groups = layer.get("groups", 1) if layer["op"] == "conv2d" else c
    rows, cols = [], []
    for o in range(co):
        group = o // (co // groups)
        for i in range(c // groups):
            for a in range(kh):
                for b in range(kw):
                    if mask is not None and not mask[o][i][a][b]:
                        continue
                    for y in range(oh):
                        for x in range(ow):
                            p, q = y * sh + a * da - top, x * sw + b * db - left
                            if 0 <= p < h and 0 <= q < w:
                                rows.append(((group * (c // groups) + i) * h + p) * w + q)
                                cols.append((o * oh + y) * ow + x)
    return sp.csr_matrix((np.ones(len(rows), int), (rows, cols)), (c * h * w, co * oh * ow))


def own_pattern(layer, shape, out, mask):
    """The pattern of a layer with one input that has entries of its own."""
    size = int(np.prod(shape))
    if layer["op"] == "linear":
        kept = np.ones((layer["out"], size), int) if mask is None else np.asarray(mask, int)
        return sp.csr_matrix(kept.T)
    if layer["op"] == "conv1d":
        pair = lambda of: [1, layer[of]]
        layer = dict(layer, op="conv2d", padding=[0, 0, *layer["padding"]],
                     **{of: pair(of) for of in ("kernel", "stride", "dilation")})
        mask = None if mask is None else mask[:, :, None]
    if layer["op"] == "global_avgpool":
        layer = dict(layer, op="avgpool2d", kernel=shape[1:])
    if layer["op"] in ("conv2d", "maxpool2d", "avgpool2d"):
        return window_pattern(layer, shape, out, mask)
    return sp.identity(size, int, "csr")


def pairs_pattern(rows, cols, shape):
    """A pattern with an entry at every pair of a row and a column."""
    return sp.csr_matrix((np.ones(np.size(rows), int), (np.ravel(rows), np.ravel(cols))), shape)


def groups_of(layer, shape):
    """The number of each value's group."""
    c, h, w = shape
    at = np.arange(c * h * w)
    if layer["op"] == "softmax":
        parts = np.moveaxis(at.reshape(c, h, w), layer["axis"], -1)
        groups = np.broadcast_to(np.arange(parts[..., 0].size).reshape(parts.shape[:-1])[..., None], parts.shape)
        made = np.empty((c, h, w), int)
        np.moveaxis(made, layer["axis"], -1)[...] = groups
        return made.ravel()
    size = np.prod(layer["shape"]) if layer["op"] == "layernorm" else c // layer["groups"] * h * w
    return at // size


def sums_pattern(layer, shape):
    """What a normalisation's sums read: m and r of every group; softmax is the same for every m."""
    groups, size = groups_of(layer, shape), int(np.prod(shape))
    count = groups.max() + 1
    parts = [1] if layer["op"] == "softmax" else [0, 1]
    return pairs_pattern(np.tile(np.arange(size), len(parts)), np.concatenate([part * count + groups for part in parts]),
                         (size, 2 * count))


def product_pattern(shape, out):
    """The positions of the output that read each value of a mul's input."""
    c, h, w = shape
    values = np.broadcast_to(np.arange(c * h * w).reshape(c, h, w), out)
    return pairs_pattern(values, np.arange(np.prod(out)), (c * h * w, int(np.prod(out))))


def permuted_pattern(layer, shape):
    size = int(np.prod(shape))
    return pairs_pattern(np.arange(size).reshape(shape).transpose(layer["order"]), np.arange(size), (size, size))


def expanded(network, shapes):
    """The network with two layers for every normalisation, and the shapes of their outputs."""
    layers, all_shapes = [], dict(shapes)
    for i, layer in enumerate(network["layers"]):
        layer = dict(layer, inputs=inputs_of(network, i))
        if layer["op"] in ("softmax", "layernorm", "groupnorm"):
            name, x = layer["name"] + ".sums", layer["inputs"][0]
            layers.append({"name": name, "op": "sums", "of": layer, "inputs": [x]})
            all_shapes[name] = [2, int(groups_of(layer, shapes[x]).max()) + 1, 1]
            layer["inputs"] = [x, name]
        layers.append(layer)
    return {"input": network["input"], "layers": layers}, all_shapes


class LiveSets:
    """The layers in order, the tensors between them, and a pair (V, U) for every layer but the head."""

    def __init__(self, network, shapes, masks):
        network, shapes = expanded(network, shapes)
        self.network, self.shapes, self.masks = network, shapes, masks
        layers = network["layers"]
        self.inputs = {layer["name"]: inputs_of(network, i) for i, layer in enumerate(layers)}
        self.order, done = [], {"input"}
        while len(self.order) < len(layers):
            layer = next(x for x in layers if x["name"] not in done and all(n in done for n in self.inputs[x["name"]]))
            self.order.append(layer)
            done.add(layer["name"])

    def live(self, t):
        """Tensors behind layer t that a later one reads; the input only in front of the first layer."""
        there = [layer["name"] for layer in self.order[:t]]
        later = {name for layer in self.order[t:] for name in self.inputs[layer["name"]]}
        return ["input"] if t == 0 else [name for name in there if name in later]

    def size(self, name):
        return int(np.prod(self.shapes[name]))

    def blocks_of(self, layer):
        """For each input of a layer: (name, entries, ones), either may be None."""
        names, out = self.inputs[layer["name"]], self.size(layer["name"])
        before = 0
        for name in names:
            eye = sp.identity(self.size(name), int, "csr")
            if layer["op"] == "mul":
                yield name, product_pattern(self.shapes[name], self.shapes[layer["name"]]), None
            elif layer["op"] in ("add", "flatten", "reshape"):
                yield name, None, eye
            elif layer["op"] == "permute":
                yield name, None, permuted_pattern(layer, self.shapes[name])
            elif layer["op"] == "sums":
                yield name, sums_pattern(layer["of"], self.shapes[name]), None
            elif layer["op"] in ("softmax", "layernorm", "groupnorm"):
                yield name, eye if name == names[0] else sums_pattern(layer, self.shapes[names[0]]).T.tocsr(), None
            elif layer["op"] == "concat":
                yield name, None, sp.csr_matrix((eye.data, eye.indices + before, eye.indptr), (eye.shape[0], out))
                before += self.size(name)
            elif layer["op"] == "slice":
                plane = int(np.prod(self.shapes[name][1:]))
                first = layer.get("first", 0) * plane
                yield name, None, eye[:, first:first + layer["out"] * plane]
            else:
                yield name, own_pattern(layer, self.shapes[name], self.shapes[layer["name"]], self.masks.get(layer["name"])), None

    def element(self, t):
        """(V, U) of layer t = 1 .. n, from the live set in front of it to the one behind it."""
        layer, before, behind = self.order[t - 1], self.live(t - 1), self.live(t)
        rows, cols = sum(map(self.size, before)), sum(map(self.size, behind))
        start = lambda names, name: sum(self.size(n) for n in names[:names.index(name)])
        parts = [sp.csr_matrix((rows, cols), dtype=int) for _ in range(2)]
        blocks = [(name, name, None, sp.identity(self.size(name), int, "csr")) for name in before if name in behind]
        blocks += [(name, layer["name"], v, u) for name, v, u in self.blocks_of(layer) if name in before]
        for row, col, *pair in blocks:
            for k, block in enumerate(pair):
                if block is not None:
                    c = block.tocoo()
                    at = (c.row + start(before, row), c.col + start(behind, col))
                    parts[k] = parts[k] + sp.csr_matrix((c.data, at), (rows, cols))
        return tuple(parts)


def pattern(matrix):
    matrix = sp.csr_matrix(matrix)
    matrix.data[:] = 1
    matrix.eliminate_zeros()
    return matrix


def multiply(a, b):
    """The product of two such pairs, and its FLOPs."""
    (v, u), (w, x) = a, b
    flops = 2 * int(np.asarray(v.sum(0)).ravel() @ np.asarray(w.sum(1)).ravel())
    ways = u @ x
    many = ways.multiply(ways > 1)
    return (pattern(v @ w + v @ x + u @ w + many), pattern(ways - many)), flops


def check_steps(counted, pairs, n, what):
    """Compares every step; pairs[i]: the element a[i], i = 1 .. n."""
    held = {(i, i): pairs[i] for i in range(1, n + 1)}
    for step in counted["steps"]:
        ends = re.search(r"a\[(\d+)(?::(\d+))?\]", step["right"])
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if step["left"].startswith("g"):
            expected, entries = 2 * held[first, last][0].nnz, None
        else:
            ends = re.search(r"a\[(\d+)(?::(\d+))?\]", step["left"])
            begin, end = int(ends[1]), int(ends[2] or ends[1])
            held[begin, last], expected = multiply(held[first, last], held[begin, end])
            entries = held[begin, last][0].nnz
            whole_identity = held[begin, last][0].nnz == 0 and step["nnz"] == held[begin, last][1].nnz
            entries = step["nnz"] if whole_identity else entries  # an identity lists its ones
        if step["flops"] != expected or (entries is not None and step["nnz"] != entries):
            print(f"FAILED {what}: step {step['left']} {step['right']}: {step['flops']} FLOPs and {step['nnz']} entries, "
                  f"expected {expected} and {entries}")
            return False
    return True


def random_masks(r, named):
    share = r.choice([0.3, 0.5, 0.7, 1.0])
    return {name[:-len(".weight")]: (torch.rand_like(p) < share).numpy() for name, p in named}


def run_case(program, folder, seed):
    """Returns the number of steps that were compared; 0 after a line that says what differs."""
    r = random.Random(seed + 2_000_000)
    network, net = of_seed(seed)
    masks = random_masks(r, list(net.weights()))
    path = lambda name: os.path.join(folder, name)
    with open(path("net.json"), "w") as file:
        json.dump(network, file)
    save_safetensors(path("w.safetensors"), {name: p.detach().numpy().copy() for name, p in net.named()})
    save_safetensors(path("m.safetensors"), {name + ".weight": m.astype(np.float32) for name, m in masks.items()})
    sets = LiveSets(network, {"input": network["input"], **net.shapes}, masks)
    whole = LiveSets(network, sets.shapes, {})
    n = len(sets.order) - 1
    pairs = {n - t + 1: sets.element(t) for t in range(1, n + 1)}
    unpruned = sum(2 * whole.element(t)[0].nnz for t in range(2, n + 1))
    weights = sum(2 * own_pattern(layer, sets.shapes[sets.inputs[layer["name"]][0]], sets.shapes[layer["name"]],
                                  masks[layer["name"]]).nnz for layer in sets.order[:-1] if layer["name"] in masks)
    weights += sum(2 * sets.size(layer["name"]) for layer in sets.order if layer["op"] in NORMS and layer["affine"])
    steps = 0
    for levels in (0, 1, 2, 3, 9):
        counted = json.loads(subprocess.run([program, "flops", path("net.json"), "--weights", path("w.safetensors"), "--mask",
                                             path("m.safetensors"), "--up-levels", str(levels), "--json"], check=True,
                                            capture_output=True, text=True).stdout)
        what = f"graph {seed}, {levels} up-levels"
        good = check_steps(counted, pairs, n, what)
        operators = [2 * pairs[n - i][0].nnz if i > 0 else 0 for i in range(n)]
        found = [o["baseline_flops"] for o in counted["operators"]]
        if [layer["name"] for layer in sets.order[:-1]] != [o["name"] for o in counted["operators"]] or operators != found:
            print(f"FAILED {what}: BP takes {found}, expected {operators}")
            good = False
        totals = counted["unpruned_baseline_flops"], counted["weight_flops"], counted["totals"]["bp_flops"]
        if totals != (unpruned, weights, sum(operators)):
            print(f"FAILED {what}: {totals} FLOPs of BP with all weights, of weights and of BP, expected "
                  f"{unpruned}, {weights} and {sum(operators)}")
            good = False
        if not good:
            return 0
        steps += len(counted["steps"])
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--graphs", type=int, default=80)
    parser.add_argument("--json", help="writes a document of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        steps = [run_case(os.path.abspath(arguments.program), folder, seed) for seed in range(arguments.graphs)]
    good = sum(s > 0 for s in steps)
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.write(json.dumps({"graphs": len(steps), "equal": good, "steps": sum(steps)}, indent=1) + "\n")
    print(f"{good} of {len(steps)} graphs with equal counts, {sum(steps)} steps compared")
    return 0 if good == len(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
