#!/usr/bin/env python3
"""Compares `bppsa grad lenet5`, `vgg11` and FILE.json with PyTorch, tensor by tensor.

    bench/rivals/grad_cnn_pytorch.py build/cpu/bppsa [--quick | --chains N]

PyTorch's modules make the weights with their default initialisation. PyTorch's gradients (float64 autograd on the values as rounded
to the dtype) are the reference. The gradients of every backward method of the program must have a normalised residual
||g - ref|| / (||ref|| eps sqrt(n)) below 30, where n is the number of layers. The cases: LeNet-5 at batches of 1 .. 64; VGG-11 with
3 % of its weights; random chains of convolutions, pools and functions, also on whole numbers, so that pools see equal values;
layers whose ReLUs are all dead; masks that empty a filter. Batch norms have given statistics there; steps of
training by the batch's statistics are compared as changes of weights. --chains N: N random chains and N / 2 such steps only.

Exit code 0: all within bounds; 1: not; 77: PyTorch is not installed.
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

from grad_pytorch import load_safetensors, np, residual, save_safetensors, torch

F = torch.nn.functional
METHODS = [["--backward", "bp"], ["--algorithm", "auto"], ["--algorithm", "linear"], ["--algorithm", "blelloch"],
           ["--up-levels", "1"], ["--up-levels", "2"], ["--up-levels", "3"]]
FUNCTIONS = {"relu": torch.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.01), "tanh": torch.tanh, "sigmoid": torch.sigmoid,
             "relu6": F.relu6, "hardsigmoid": lambda x: F.relu6(x + 3) / 6,  # PyTorch's own has 1/6 in float32
 "hardswish": F.hardswish, "silu": F.silu, "gelu": F.gelu, "dropout": lambda x: x,
             "flatten": lambda x: x.flatten(1)[:, :, None, None]}


class Chain(torch.nn.Module):
    """A network file as a PyTorch module. prefix: the prefix of the names of a layer's parameters, by its position."""

    def __init__(self, network, prefix=lambda i, layer: layer["name"]):
        super().__init__()
        self.network, self.modules_, self.prefixes = network, [], []
        shape = torch.zeros(1, *network["input"])
        for i, layer in enumerate(network["layers"]):
            module = None
            if layer["op"] == "conv2d":
                module = torch.nn.Conv2d(shape.shape[1], layer["out"], layer["kernel"], layer.get("stride", [1, 1]), 0,
                                         layer.get("dilation", [1, 1]), layer.get("groups", 1), layer.get("bias", True))
            elif layer["op"] == "linear":
                module = torch.nn.Linear(shape[0].numel(), layer["out"], layer.get("bias", True))
            elif layer["op"] == "batchnorm2d":
                module = torch.nn.BatchNorm2d(shape.shape[1], eps=layer["eps"], affine=layer["affine"]).eval()
                for name, value in module.state_dict().items():
                    if value.dim() > 0:
                        value.copy_(torch.rand_like(value) + 0.5)
            self.modules_.append(module)
            self.prefixes.append(prefix(i, layer))
            if module is not None:
                self.add_module(f"m{i}", module)
            shape = self.apply_layer(i, shape)

    def apply_layer(self, i, x):
        layer, module = self.network["layers"][i], self.modules_[i]
        top, bottom, left, right = layer.get("padding", [0, 0, 0, 0])
        kernel, stride = layer.get("kernel"), layer.get("stride", layer.get("kernel"))
        if layer["op"] == "conv2d":
            return module(F.pad(x, (left, right, top, bottom)))
        if layer["op"] == "linear":
            return module(x.flatten(1))[:, :, None, None]
        if layer["op"] == "batchnorm2d":
            return module(x)
        if layer["op"] in ("adaptive_avgpool2d", "global_avgpool"):
            return F.adaptive_avg_pool2d(x, layer.get("size", 1))
        if layer["op"] == "maxpool2d":
            return F.max_pool2d(x, kernel, stride, (top, left), layer.get("dilation", [1, 1]), layer.get("ceil_mode", False))
        if layer["op"] == "avgpool2d":
            return F.avg_pool2d(x, kernel, stride, (top, left), layer.get("ceil_mode", False), not layer.get("exclude_pad", False))
        return FUNCTIONS[layer["op"]](x, **({"approximate": layer["approximate"]} if layer["op"] == "gelu" else {}))

    def forward(self, x):
        for i in range(len(self.modules_)):
            x = self.apply_layer(i, x)
        return x.flatten(1)

    def named(self):
        for prefix, module in zip(self.prefixes, self.modules_):
            for name, p in module.named_parameters() if module is not None else ():
                yield f"{prefix}.{name}", p

    def state(self):
        """All that a file of weights has: parameters and running statistics."""
        for prefix, module in zip(self.prefixes, self.modules_):
            for name, value in module.state_dict().items() if module is not None else ():
                if value.dim() > 0:
                    yield f"{prefix}.{name}", value


def conv(name, out, k, p=0):
    return {"name": name, "op": "conv2d", "out": out, "kernel": [k, k], "padding": [p] * 4}


def lenet5():
    pool = lambda i: {"name": f"pool{i}", "op": "maxpool2d", "kernel": [2, 2]}
    relu = lambda i: {"name": f"relu{i}", "op": "relu"}
    fc = lambda i, n: {"name": f"fc{i}", "op": "linear", "out": n}
    layers = [conv("conv1", 6, 5), relu(1), pool(1), conv("conv2", 16, 5), relu(2), pool(2), fc(1, 120), relu(3), fc(2, 84),
              relu(4), fc(3, 10)]
    return {"input": [3, 32, 32], "layers": layers}


def vgg11():
    layers = []
    for out, pooled in ((64, 1), (128, 1), (256, 0), (256, 1), (512, 0), (512, 1), (512, 0), (512, 1)):
        layers += [conv(f"c{len(layers)}", out, 3, 1), {"name": f"r{len(layers)}", "op": "relu"}]
        layers += [{"name": f"p{len(layers)}", "op": "maxpool2d", "kernel": [2, 2]}] if pooled else []
    return {"input": [3, 32, 32], "layers": layers + [{"name": "classifier", "op": "linear", "out": 10}]}


def random_network(r):
    """A random chain of layers whose shapes fit together; chains that PyTorch refuses are drawn again."""
    while True:
        layers = []
        for i in range(r.randrange(8)):
            op = r.choice(["conv2d", "conv2d", "conv2d", "maxpool2d", "avgpool2d", "relu", "leaky_relu", "tanh", "sigmoid",
                           "linear", "flatten", "relu6", "hardsigmoid", "hardswish", "silu", "gelu", "batchnorm2d",
                           "batchnorm2d", "adaptive_avgpool2d", "global_avgpool", "dropout"])
            layer = {"name": f"layer{i}", "op": op}
            if op in ("conv2d", "maxpool2d", "avgpool2d"):
                layer["kernel"] = [r.randint(1, 3), r.randint(1, 3)]
                layer["stride"] = [r.randint(1, 2), r.randint(1, 2)]
            if op == "conv2d":
                layer["padding"], layer["dilation"] = [r.randrange(3) for _ in range(4)], [r.randint(1, 2), r.randint(1, 2)]
                layer["groups"] = r.choice([1, 1, 2, 3])
                layer["out"] = layer["groups"] * r.randint(1, 3)
            if op in ("maxpool2d", "avgpool2d"):
                p = [min(r.randrange(2), k // 2) for k in layer["kernel"]]
                layer["padding"], layer["ceil_mode"] = [p[0], p[0], p[1], p[1]], r.random() < 0.5
            if op == "avgpool2d":
                layer["exclude_pad"] = r.random() < 0.5
            if op == "batchnorm2d":
                layer["eps"], layer["affine"] = r.choice([1e-5, 0.1]), r.random() < 0.7
            if op == "adaptive_avgpool2d":
                layer["size"] = [r.randint(1, 5), r.randint(1, 5)]
            if op == "gelu":
                layer["approximate"] = r.choice(["none", "tanh"])
            if op == "linear":
                layer["out"] = r.randint(1, 9)
            if op in ("conv2d", "linear"):
                layer["bias"] = r.random() < 0.7
            layers.append(layer)
        network = {"input": [r.randint(1, 6), r.randint(1, 12), r.randint(1, 12)],
                   "layers": layers + [{"name": "head", "op": "linear", "out": 4}]}
        try:
            return network, Chain(network)
        except (RuntimeError, ValueError):
            continue


def reference_of(net, x, y, masks):
    net, x = net.double(), x.double().requires_grad_()
    net.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    out = {name: (p.grad * masks.get(name, 1)).numpy().copy() for name, p in net.named()}
    out.update(input=x.grad.numpy().copy(), loss=np.asarray(loss.item()))
    return out


def check(program, folder, word, net, x, y, dtype, masks=None, methods=METHODS, excuse=lambda *_: False):
    """Compares every method's gradients with PyTorch's.

    excuse: is asked about a residual beyond the bound, with (name, residual, net, x, y, dtype, masks). Returns the largest residual
    that needed no excuse, or infinity after a line that names the case.
    """
    masks, path = masks or {}, lambda name: os.path.join(folder, name)
    net = net.to(dtype)
    with torch.no_grad():
        for name, p in net.named():
            p.mul_(masks.get(name, torch.ones(())).to(dtype))
    x, info = x.to(dtype), np.finfo(str(dtype).split(".")[1])
    save_safetensors(path("w.safetensors"), {name: p.detach().numpy().copy() for name, p in net.state()})
    np.save(path("x.npy"), x.numpy())
    np.save(path("y.npy"), y.numpy())
    reference, worst = reference_of(net, x, y, masks), 0.0
    command = [program, "grad", word, "--weights", path("w.safetensors"), "--input", path("x.npy"), "--labels", path("y.npy"),
               "--out", path("g.safetensors")]
    if masks:
        save_safetensors(path("m.safetensors"), {name: m.numpy().astype(np.float32) for name, m in masks.items()})
        command += ["--mask", path("m.safetensors")]
    for method in methods:
        subprocess.run(command + method, check=True, stdout=subprocess.DEVNULL)
        got = load_safetensors(path("g.safetensors"))
        assert set(got) == set(reference), (set(got), set(reference))
        for name in reference:
            r = residual(got[name], reference[name], float(info.eps), float(info.tiny), len(net.modules_))
            if not r < 30 and excuse(name, r, net, x, y, dtype, masks):
                continue
            if not r < 30:
                print(f"FAILED {word} {dtype} B {len(x)} {' '.join(method)}: {name}: residual {r:.1f}: {json.dumps(net.network)}")
                return math.inf
            worst = max(worst, r)
    return worst


def check_training(program, folder, seed):
    """One step of SGD with rate 1 by the batch's statistics: weights and running statistics against PyTorch's train().

    Returns the largest residual of the step, which is the gradient, or infinity.
    """
    r, path = random.Random(seed), lambda name: os.path.join(folder, name)
    torch.manual_seed(seed)
    norm = lambda i: {"name": f"bn{i}", "op": "batchnorm2d", "eps": r.choice([1e-5, 0.1]), "affine": r.random() < 0.7,
                      "momentum": r.choice([0.1, 0.5])}
    layers = [norm(0)] * r.randrange(2) + [conv("c1", r.randint(1, 6), 3, r.randrange(2)), norm(1), {"name": "a1", "op": "silu"}]
    layers += [{"name": "p", "op": "adaptive_avgpool2d", "size": [r.randint(1, 4), r.randint(1, 4)]}, norm(2)]
    network = {"input": [r.randint(1, 4), r.randint(3, 9), r.randint(3, 9)],
               "layers": layers + [{"name": "head", "op": "linear", "out": 3}]}
    net = Chain(network).double().train()
    for layer, module in zip(network["layers"], net.modules_):
        if layer["op"] == "batchnorm2d":
            module.momentum = layer["momentum"]
    before = {name: value.detach().numpy().copy() for name, value in net.state()}
    x = torch.randn(r.randint(2, 6), *network["input"]).double()
    y = torch.randint(3, x.shape[:1])
    save_safetensors(path("w.safetensors"), before)
    np.save(path("x.npy"), x.numpy())
    np.save(path("y.npy"), y.numpy())
    with open(path("net.json"), "w") as file:
        json.dump(network, file)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    subprocess.run([program, "train", path("net.json"), "--data", f"npy:{path('x.npy')},{path('y.npy')}", "--batch", str(len(x)),
                    "--iterations", "1", "--lr", "1", "--momentum", "0", "--dtype", "f64", "--weights", path("w.safetensors"),
                    "--save-weights", path("after.safetensors")], check=True, stdout=subprocess.DEVNULL)
    after, worst, info = load_safetensors(path("after.safetensors")), 0.0, np.finfo("float64")
    wanted = {name: -p.grad.numpy() for name, p in net.named()}
    wanted.update({name: value.numpy() - before[name] for name, value in net.state() if ".running_" in name})
    scale = max(np.linalg.norm(g) for g in wanted.values())
    for name, change in wanted.items():
        # The step is a difference of weights, whose rounding is relative to them; a bias in front of a norm has no gradient.
        error = np.linalg.norm(after[name] - before[name] - change)
        size = max(np.linalg.norm(change), np.linalg.norm(before[name]), scale)
        worst = max(worst, float(error / (size * info.eps * math.sqrt(len(network["layers"])))))
    if not worst < 30:
        print(f"FAILED a step of training {seed}: residual {worst:.1f}: {json.dumps(network)}")
    return worst if worst < 30 else math.inf


def whole_numbers(*shape):
    return torch.randint(-2, 3, shape).double()


def cases(program, folder, quick):
    for batch in (1, 2, 7) if quick else (1, 2, 3, 7, 16, 33, 64):
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(batch)
            images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
            yield check(program, folder, "lenet5", Chain(lenet5()), images, labels, dtype)
    for dead in (0, 3):  # a layer whose ReLUs are all dead; a filter that a mask empties
        net = Chain(lenet5())
        with torch.no_grad():
            net.modules_[dead].bias.fill_(-100)
        yield check(program, folder, "lenet5", net, torch.randn(3, 3, 32, 32), torch.randint(10, (3,)), torch.float32)
        net, masks = Chain(lenet5()), {}
        for name, p in net.named():
            if p.dim() > 1:
                masks[name] = (torch.rand_like(p) < 0.3).double()
                masks[name][min(2, len(p) - 1)] = 0
        yield check(program, folder, "lenet5", net, torch.randn(3, 3, 32, 32), torch.randint(10, (3,)), torch.float64, masks)
    if not quick:
        torch.manual_seed(0)
        net = Chain(vgg11(), lambda i, layer: layer["name"] if i == 21 else f"features.{i}")
        masks = {}
        for name, p in net.named():
            if p.dim() > 1:
                masks[name] = (p.abs() >= p.abs().flatten().kthvalue(round(0.97 * p.numel())).values).double().detach()
        yield check(program, folder, "vgg11", net, torch.randn(1, 3, 32, 32), torch.tensor([3]), torch.float32, masks,
                    [["--backward", "bp"], ["--up-levels", "2"], ["--algorithm", "auto"]])
    yield from chains(program, folder, 20 if quick else 120)


def chains(program, folder, count):
    path = os.path.join(folder, "net.json")
    for seed in range(count):
        r = random.Random(seed)
        torch.manual_seed(seed)
        network, net = random_network(r)
        with open(path, "w") as file:
            json.dump(network, file)
        shape = (r.randint(1, 4), *network["input"])
        x = whole_numbers(*shape) if seed % 3 == 0 else torch.randn(*shape)
        yield check(program, folder, path, net, x, torch.randint(4, shape[:1]), (torch.float32, torch.float64)[seed % 2])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.abspath(sys.argv[1])
        alone = int(sys.argv[sys.argv.index("--chains") + 1]) if "--chains" in sys.argv else 0
        results = list(chains(program, folder, alone) if alone else cases(program, folder, "--quick" in sys.argv))
        results += [check_training(program, folder, seed) for seed in range(alone // 2 if alone else 20)]
    good = [r for r in results if r < math.inf]
    print(f"PyTorch {torch.__version__}: {len(good)} of {len(results)} cases by up to {len(METHODS)} methods within bounds, "
          f"largest residual {max(good, default=0):.2f}")
    return 0 if len(good) == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
