"""Random networks that are graphs, as network files and as PyTorch modules, for grad_graph_pytorch.py and flops_graph_scipy.py."""
import random

from grad_cnn_pytorch import FUNCTIONS, Chain
from grad_pytorch import np, torch

SEVERAL = ("add", "mul", "concat")
NORMS = ("layernorm", "groupnorm")


def inputs_of(network, i):
    """The names that layer i reads: by default the layer before it in the file."""
    layers = network["layers"]
    return layers[i].get("inputs", [layers[i - 1]["name"] if i > 0 else "input"])


class Graph(Chain):
    """A network file as a PyTorch module; its layers may stand in any order."""

    def __init__(self, network):
        torch.nn.Module.__init__(self)
        self.network, self.modules_, self.prefixes = network, [None] * len(network["layers"]), []
        self.places = {layer["name"]: i for i, layer in enumerate(network["layers"])}
        self.prefixes = [layer["name"] for layer in network["layers"]]
        with torch.no_grad():
            shapes = self.evaluate(torch.zeros(1, *network["input"]), self.make_module)
        self.shapes = {name: list(x.shape[1:]) for name, x in shapes.items()}
        for i, module in enumerate(self.modules_):
            if module is not None:
                self.add_module(f"m{i}", module)

    def make_module(self, i, x):
        layer = self.network["layers"][i]
        if layer["op"] == "conv2d":
            self.modules_[i] = torch.nn.Conv2d(x.shape[1], layer["out"], layer["kernel"], layer.get("stride", [1, 1]), 0,
                                               layer.get("dilation", [1, 1]), layer.get("groups", 1), layer.get("bias", True))
        elif layer["op"] == "conv1d":
            self.modules_[i] = torch.nn.Conv1d(x.shape[1], layer["out"], layer["kernel"], layer["stride"], 0, layer["dilation"],
                                               layer["groups"], layer["bias"])
        elif layer["op"] == "linear":
            self.modules_[i] = torch.nn.Linear(x[0].numel(), layer["out"], layer.get("bias", True))
        elif layer["op"] in NORMS:
            affine = layer["affine"]
            self.modules_[i] = (torch.nn.LayerNorm(layer["shape"], layer["eps"], affine) if layer["op"] == "layernorm" else
                                torch.nn.GroupNorm(layer["groups"], x.shape[1], layer["eps"], affine))
            for value in self.modules_[i].parameters():
                torch.nn.init.uniform_(value, 0.5, 1.5)

    def evaluate(self, x, before=lambda i, x: None):
        """All tensors by name. before: is called for each layer with its first input."""
        values = {"input": x}
        waiting = list(range(len(self.network["layers"])))
        while waiting:
            ready = [i for i in waiting if all(name in values for name in inputs_of(self.network, i))]
            for i in ready:
                read = [values[name] for name in inputs_of(self.network, i)]
                before(i, read[0])
                values[self.network["layers"][i]["name"]] = self.apply_graph_layer(i, read)
            waiting = [i for i in waiting if i not in ready]
        return values

    def apply_graph_layer(self, i, read):
        layer = self.network["layers"][i]
        if layer["op"] == "concat":
            return torch.cat(read, 1)
        if layer["op"] == "slice":
            return read[0][:, layer.get("first", 0):layer.get("first", 0) + layer["out"]]
        if layer["op"] == "reshape":
            return read[0].reshape(-1, *layer["shape"])
        if layer["op"] == "permute":
            return read[0].permute(0, *[axis + 1 for axis in layer["order"]])
        if layer["op"] == "softmax":
            return read[0].softmax(layer["axis"] + 1)
        if layer["op"] == "conv1d":
            return self.modules_[i](torch.nn.functional.pad(read[0][:, :, 0], layer["padding"]))[:, :, None]
        if layer["op"] in NORMS:
            return self.modules_[i](read[0])
        if layer["op"] in ("add", "mul"):
            y = read[0]
            for x in read[1:]:
                y = y + x if layer["op"] == "add" else y * x
            return y
        return self.apply_layer(i, read[0])

    def weights(self):
        """The weights that a mask may leave out: those of convolutions and linear operators."""
        kinds = {layer["name"]: layer["op"] for layer in self.network["layers"]}
        for name, p in self.named():
            layer, _, last = name.rpartition(".")
            if last == "weight" and kinds[layer] not in NORMS:
                yield name, p

    def forward(self, x):
        return self.evaluate(x)[self.network["layers"][-1]["name"]].flatten(1)


class Writer:
    """Adds layers to a network file, and knows the shapes of all tensors."""

    def __init__(self, r, shape):
        self.r, self.layers, self.shapes, self.read = r, [], {"input": shape}, set()

    def put(self, op, inputs, shape, /, **members):
        name = f"layer{len(self.layers)}"
        self.layers.append({"name": name, "op": op, "inputs": inputs, **members})
        self.shapes[name] = shape
        self.read.update(inputs)
        return name

    def conv(self, x, out, kernel, stride=1, padding=0, groups=1):
        c, h, w = self.shapes[x]
        size = lambda n: (n + 2 * padding - kernel) // stride + 1
        if size(h) < 1 or size(w) < 1:
            return x
        return self.put("conv2d", [x], [out, size(h), size(w)], out=out, kernel=[kernel, kernel], stride=[stride, stride],
                        padding=[padding] * 4, groups=groups, bias=self.r.random() < 0.7)

    def gate(self, x):
        """Squeeze and excitation: factors of the channels, or of the positions."""
        c, h, w = self.shapes[x]
        if self.r.random() < 0.7:
            gate = self.conv(self.put("global_avgpool", [x], [c, 1, 1]), c, 1)
        else:
            gate = self.conv(x, 1, 1)
        gate = self.put("sigmoid", [gate], self.shapes[gate])
        self.put("mul", self.r.sample([x, gate], 2), [c, h, w])

    def line(self, x):
        """A convolution over the positions in a line."""
        r, (c, h, w) = self.r, self.shapes[x]
        x = self.put("reshape", [x], [c, 1, h * w], shape=[c, 1, h * w])
        kernel, stride, dilation, padding = r.randint(1, 3), r.randint(1, 2), r.randint(1, 2), [r.randint(0, 2), r.randint(0, 2)]
        size = (h * w + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1
        if size > 0:
            out = c * r.randint(1, 2)
            self.put("conv1d", [x], [out, 1, size], out=out, kernel=kernel, stride=stride, dilation=dilation, padding=padding,
                     groups=r.choice([1, c]), bias=r.random() < 0.7)

    def normalise(self, x):
        """Groups of four values at least: those of fewer are almost the same, whatever they were."""
        r, (c, h, w) = self.r, self.shapes[x]
        kind, members = r.choice(["softmax", *NORMS]), {"eps": r.choice([0.01, 0.1]), "affine": r.random() < 0.7}
        axes = [axis for axis in range(3) if self.shapes[x][axis] > 3]
        endings = [shape for shape in ([w], [h, w], [c, h, w]) if np.prod(shape) > 3]
        groups = [g for g in range(1, c + 1) if c % g == 0 and c // g * h * w > 3]
        if kind == "softmax" and axes:
            self.put(kind, [x], [c, h, w], axis=r.choice(axes))
        elif kind == "layernorm" and endings:
            self.put(kind, [x], [c, h, w], shape=r.choice(endings), **members)
        elif kind == "groupnorm" and groups:
            self.put(kind, [x], [c, h, w], groups=r.choice(groups), **members)

    def alike(self, x, channels=True):
        """Other tensors of x's shape, or of its height and width."""
        first = 0 if channels else 1
        return [n for n in self.shapes if n != x and self.shapes[n][first:] == self.shapes[x][first:]]

    def step(self):
        r = self.r
        x = r.choice(list(self.shapes)[-5:])
        c, h, w = self.shapes[x]
        kind = r.choice(["function", "conv", "depthwise", "groups", "pool", "residual", "residual", "join", "join", "concat",
                         "slice", "flatten", "permute", "gate", "line", "normalise", "normalise"])
        if kind == "function":
            self.put(r.choice(["relu", "tanh", "sigmoid", "leaky_relu"]), [x], [c, h, w])
        elif kind == "conv":
            self.conv(x, r.randint(1, 4), r.choice([1, 3]), r.choice([1, 1, 2]), 1)
        elif kind == "depthwise":
            self.conv(x, c * r.choice([1, 1, 2]), 3, r.choice([1, 1, 2]), 1, c)
        elif kind == "groups" and c % 2 == 0:
            self.conv(x, 2 * r.randint(1, 2), 3, 1, 1, 2)
        elif kind == "pool" and min(h, w) > 1:
            self.put(r.choice(["maxpool2d", "avgpool2d"]), [x], [c, (h - 2) // 2 + 1, (w - 2) // 2 + 1], kernel=[2, 2],
                     stride=[2, 2])
        elif kind == "residual":
            y = self.put("relu", [self.conv(x, r.randint(1, 4), 3, 1, 1)], None)
            self.shapes[y] = self.shapes[self.layers[-1]["inputs"][0]]
            y = self.conv(y, c, 3, 1, 1)
            y = self.put("add", [y, x] if r.random() < 0.5 else [x, y], [c, h, w])
            self.put("relu", [y], [c, h, w])
        elif kind == "join":
            others = self.alike(x)
            picked = r.sample(others, min(len(others), r.randint(1, 2)))
            if picked:
                self.put(r.choice(["add", "mul", "mul"]), [x, *picked], [c, h, w])
        elif kind == "concat":
            picked = [x] + [r.choice(self.alike(x, False) + [x]) for _ in range(r.randint(1, 2))]
            if sum(self.shapes[n][0] for n in picked) < 12:
                self.put("concat", picked, [sum(self.shapes[n][0] for n in picked), h, w])
        elif kind == "slice":
            first = r.randrange(c)
            self.put("slice", [x], [r.randint(1, c - first), h, w], first=first)
            self.layers[-1]["out"] = self.shapes[self.layers[-1]["name"]][0]
        elif kind == "permute":
            order = r.sample([0, 1, 2], 3)
            self.put("permute", [x], [self.shapes[x][axis] for axis in order], order=order)
        elif kind == "gate":
            self.gate(x)
        elif kind == "line" and h * w < 60:
            self.line(x)
        elif kind == "normalise":
            self.normalise(x)
        elif kind == "flatten" and c * h * w < 200:
            self.put("flatten", [x], [c * h * w, 1, 1])


def random_graph(r):
    """A network file of 3 to about 20 layers, which PyTorch takes too, with its module."""
    writer = Writer(r, [r.randint(1, 4), r.randint(2, 7), r.randint(2, 7)])
    writer.conv("input", r.randint(1, 4), 3, 1, 1)
    for _ in range(r.randint(1, 8)):
        writer.step()
    ends = [name for name in writer.shapes if name not in writer.read]
    heads = [writer.put("linear", [name], [3, 1, 1], out=3, bias=True) for name in ends]
    last = writer.put(r.choice(SEVERAL), heads, [3, 1, 1]) if len(heads) > 1 else heads[0]
    layers = writer.layers
    if r.random() < 0.5:  # the file's order is not the order of the passes
        r.shuffle(layers)
    layers.append({"name": "head", "op": "linear", "inputs": [last], "out": 4})
    for i, layer in enumerate(layers):
        if layer["op"] not in SEVERAL and layer["inputs"] == [layers[i - 1]["name"] if i > 0 else "input"] and r.random() < 0.5:
            del layer["inputs"]
    network = {"input": writer.shapes["input"], "layers": layers}
    return network, Graph(network)


def of_seed(seed):
    torch.manual_seed(seed)
    return random_graph(random.Random(seed))


__all__ = ["FUNCTIONS", "NORMS", "Graph", "inputs_of", "of_seed"]
