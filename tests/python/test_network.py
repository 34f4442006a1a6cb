"""bppsa.torch.network and flops: models of PyTorch as networks of the program, and the table of their FLOPs."""
import csv
import io
import json
import os
import sys
import tempfile
import unittest
import warnings

import numpy as np

from support import has, main, residual

import bppsa

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench", "rivals"))

if has("torch"):
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.utils import prune

    import bppsa.torch
    from image_models import MODELS

    class Modules(nn.Module):
        """Modules of every kind, a residual, branches, a depthwise and a grouped convolution."""

        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, (1, 2), bias=False), nn.BatchNorm2d(8, eps=1e-3), nn.ReLU6())
            self.depthwise = nn.Conv2d(8, 8, 3, padding="same", groups=8, dilation=2)
            self.norm, self.swish = nn.BatchNorm2d(8, affine=False), nn.Hardswish()
            self.acts = nn.ModuleList([nn.SiLU(), nn.GELU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(0.2),
                                       nn.Hardtanh(0, 6), nn.Identity(), nn.Dropout(0.3)])
            self.pools = nn.ModuleList([nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2, 1, ceil_mode=True),
                                        nn.AvgPool2d(3, 1, 1, count_include_pad=False)])
            self.grouped = nn.Conv2d(16, 12, (3, 2), stride=(2, 1), groups=4)
            self.mean, self.flat = nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten()
            self.hidden, self.head = nn.Linear(72, 9, bias=False), nn.Linear(9, 5)

        def forward(self, x):
            x = self.stem(x)
            y = self.norm(self.depthwise(x)) + x
            for act in self.acts:
                y = act(y)
            y = torch.cat([self.pools[0](self.swish(y)), self.pools[2](x)], dim=1)
            y = self.mean(self.grouped(self.pools[1](y)))
            return self.head(torch.tanh(self.hidden(self.flat(y))))

    class Functions(nn.Module):
        """The same as functions and methods, with names of its own for the weights."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.n = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(6)
            self.fc = nn.Linear(12, 4)

        def forward(self, x):
            y = F.conv2d(x, self.a.weight, self.a.bias, padding=1)
            y = F.batch_norm(y, self.n.running_mean, self.n.running_var, self.n.weight, self.n.bias, eps=self.n.eps)
            first, second = torch.chunk(F.relu(y), 2, dim=1)
            third = y[:, 1:4]
            z = first * torch.sigmoid(self.b(second)) + F.silu(third)
            z += F.gelu(second, approximate="tanh")
            u, v, w = z.split(1, 1)
            z = torch.cat((u, v, w, F.hardswish(z)), 1).contiguous()
            z = torch.mul(F.max_pool2d(z, 2, stride=1), F.avg_pool2d(z, 2, 1))
            z = F.dropout(F.leaky_relu(F.relu6(z), 0.1), 0.4, self.training)
            z = torch.cat([z.mean((2, 3)), F.adaptive_avg_pool2d(z, 1).view(z.size(0), -1)], 1)
            return F.linear(z, self.fc.weight, self.fc.bias)

    class Gates(nn.Module):
        """Norms of samples, softmax, squeeze and excitation, a shuffle of channels, and axes in other orders, as modules and
        functions."""

        def __init__(self):
            super().__init__()
            self.stem, self.group, self.layer = nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8, eps=0.1), nn.LayerNorm([8], eps=0.1)
            self.squeeze, self.excite, self.plain = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1), nn.LayerNorm((8, 5, 4), eps=0.1,
                                                                                                         elementwise_affine=False)
            self.line, self.norm1, self.soft = nn.Conv1d(8, 6, 3, 2, padding=1, groups=2), nn.BatchNorm1d(6), nn.Softmax(dim=1)
            self.gate, self.same, self.fc = nn.Linear(8, 8), nn.Conv1d(6, 6, 2, padding="same", bias=False), nn.Linear(60, 4)

        def forward(self, x):
            x = self.group(self.stem(x))
            x = x * torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
            x = self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            b, c, h, w = x.shape
            x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
            x = torch.sigmoid(self.gate(x.mean([2, 3]))).view(b, c, 1, 1) * self.plain(x)
            x = F.softmax(x, -1) * x.softmax(dim=2)
            x = self.norm1(self.line(x.flatten(2)))
            x = F.group_norm(x, 3, eps=0.1) + self.soft(self.same(x))
            return self.fc((x.transpose(1, 2) * x.permute(0, 2, 1).sigmoid()).reshape(b, -1))

    class Calls(nn.Module):
        """A model that does what its function does with a convolution and a linear operator."""

        def __init__(self, function):
            super().__init__()
            self.conv, self.bn, self.fc = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Linear(4, 3)
            self.circular = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")
            self.scale, self.hard = nn.Parameter(torch.ones(1)), nn.Hardsigmoid()
            self.norm = nn.LayerNorm([3, 3])
            self.norm.bias = None
            self.function = function

        def forward(self, x):
            return self.function(self, x)


def head(model, y):
    return model.fc(y.mean((2, 3)))


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Networks(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def check_gradients(self, model, x, labels):
        """The network's gradients by the program are those of the model by autograd."""
        model = model.double().eval()
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.running_mean.uniform_(-0.5, 0.5), module.running_var.uniform_(0.5, 2)
        graph = bppsa.torch.network(model, x[:1])
        for layer in graph["layers"]:  # a scan and a count have no use for it, and evaluation leaves nothing out
            layer["p"] = 0.0 if layer["op"] == "dropout" else layer.get("p")
            layer.update({} if layer["op"] == "dropout" else {"p": None})
        graph["layers"] = [{key: value for key, value in layer.items() if value is not None} for layer in graph["layers"]]
        weights = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
        found = bppsa.grad(graph, weights, x, labels, dtype="f64")
        F.cross_entropy(model(x), labels).backward()
        for name, parameter in model.named_parameters():
            with self.subTest(name):
                self.assertLess(residual(found[name], parameter.grad.numpy(), len(graph["layers"]), np.float64), 30)
        return graph

    def test_modules_and_functions(self):
        labels = torch.tensor([1, 0, 2])
        graph = self.check_gradients(Modules(), torch.randn(3, 3, 13, 12, dtype=torch.float64), labels)
        self.assertIn({"name": "acts.2", "op": "tanh", "inputs": ["acts.1"]}, graph["layers"])
        self.assertEqual([layer["name"] for layer in graph["layers"] if layer["op"] == "add"], ["add"])
        graph = self.check_gradients(Functions(), torch.randn(3, 3, 7, 6, dtype=torch.float64), labels)
        self.assertEqual(graph["layers"][-1]["name"], "fc")

    def test_gates(self):
        """Layers are made where an operation reads another shape, and nowhere else."""
        graph = self.check_gradients(Gates(), torch.randn(2, 3, 7, 6, dtype=torch.float64), torch.tensor([3, 1]))
        words = [layer["op"] for layer in graph["layers"]]
        counts = {word: words.count(word) for word in ("permute", "reshape", "layernorm", "groupnorm", "softmax", "conv1d", "mul")}
        self.assertEqual(counts, {"permute": 5, "reshape": 4, "layernorm": 2, "groupnorm": 2, "softmax": 3, "conv1d": 2, "mul": 4})
        model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
        line = bppsa.torch.network(model, torch.ones(1, 2, 5))
        self.assertEqual(line["input"], [2, 1, 5])
        self.assertEqual(line["layers"][0]["op"], "conv1d")

    def test_hardsigmoid(self):
        """Its gradient in PyTorch has a 1/6 in float32, so that its layers are compared and no gradients."""
        for name, function in (("hardsigmoid", lambda m, x: head(m, F.hardsigmoid(m.conv(x)))),
                               ("hard", lambda m, x: head(m, m.hard(m.conv(x))))):
            layers = bppsa.torch.network(Calls(function), torch.ones(1, 2, 5, 5))["layers"]
            self.assertEqual(layers[1], {"name": name, "op": "hardsigmoid", "inputs": ["conv"]})

    def test_built_in(self):
        """The models of image_models.py are the built-in networks, with the same names."""
        for name, extent in (("resnet18", 64), ("resnet50", 32), ("mobilenetv2", 64), ("resnet20", 32)):
            with self.subTest(name):
                graph = bppsa.torch.network(MODELS[name][0](), torch.zeros(2, 3, extent, extent))
                ours = bppsa.run("flops", graph, up_levels="none")
                built_in = bppsa.run("flops", name, in_shape=(3, extent, extent), up_levels="none")
                self.assertEqual(ours["per_layer"], built_in["per_layer"])

    def test_model_stays(self):
        model = MODELS["resnet20"][0]()
        model.train()
        model.layer1.eval()
        prune.l1_unstructured(model.fc, "weight", 0.5)
        x = torch.randn(2, 3, 32, 32)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(2):
            first = bppsa.torch.flops(model, x)
            self.assertTrue(model.training and model.layer2.training and not model.layer1.training)
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]), name)
        model(x).sum().backward()
        self.assertGreater(float(model.fc.weight_orig.grad.abs().sum()), 0)
        self.assertEqual(first.rows, bppsa.torch.flops(model, x).rows)

    def test_refusals(self):
        def shared(m, x):
            return m.fc(m.fc.weight.mean() + m.conv(x).mean((2, 3)))

        cases = (
            (lambda m, x: head(m, torch.exp(m.conv(x))), "exp"),
            (lambda m, x: head(m, m.conv(x) + m.scale), "expected tensors that are computed from the input"),
            (lambda m, x: head(m, m.conv(x) * 2), "as an operand"),
            (lambda m, x: head(m, m.conv(x) + m.conv(x).mean((2, 3), keepdim=True)), "conv"),
            (lambda m, x: head(m, m.bn(m.conv(x))), "expected track_running_stats=True"),
            (lambda m, x: m.fc(m.conv(x).amax((2, 3))), "amax"),
            (lambda m, x: head(m, m.conv(x)) if x.sum() > 0 else m.fc(x), "expected a model whose operations do not depend on"),
            (lambda m, x: m.conv(x).mean((2, 3)), "expected a model that ends with a linear operator"),
            (lambda m, x: (head(m, m.conv(x)), x), "2 outputs, expected one tensor"),
            (lambda m, x: m.fc(m.conv(x).permute(0, 2, 3, 1)), "a tensor of 4 axes, expected [B, N]"),
            (lambda m, x: head(m, m.conv(x).transpose(0, 1).reshape(1, 4, 3, 3)), "expected the batch as the first one"),
            (lambda m, x: head(m, m.conv(x).view(1, 2, 2, 3, 3).permute(0, 4, 3, 2, 1).reshape(1, 4, 3, 3)), "at most three"),
            (lambda m, x: head(m, m.norm(m.conv(x))), "a weight without a bias, expected both or neither"),
            (lambda m, x: head(m, m.conv(x).softmax(0)), "softmax along axis 0, expected one of the axes behind the batch"),
            (lambda m, x: head(m, F.hardtanh(m.conv(x))), "hardtanh from -1"),
            (lambda m, x: head(m, F.conv2d(x, m.conv.weight * m.scale)), "mul: a parameter as an operand"),
            (lambda m, x: head(m, torch.cat([m.conv(x)] * 2, 2)), "expected axis 1, the channels"),
            (lambda m, x: m.fc(m.conv(x).view(-1, 4)), "view of"),
            (shared, "mean"),
        )
        for function, part in cases:
            with self.subTest(part), self.assertRaises(bppsa.RequestError) as raised:
                bppsa.torch.network(Calls(function), torch.ones(1, 2, 5, 5))
            self.assertIn(part, str(raised.exception))
            self.assertNotIn("\n", str(raised.exception))
            self.assertTrue(str(raised.exception).startswith("network: "), str(raised.exception))
        model = MODELS["resnet20"][0]()
        for example in (torch.ones(3), torch.ones(0, 3, 32, 32), [torch.ones(1, 3, 32, 32)] * 2, "x"):
            with self.assertRaisesRegex(bppsa.RequestError, "example_input: .*, expected a batch of images"):
                bppsa.torch.network(model, example)
        with self.assertRaisesRegex(bppsa.RequestError, "model: a str, expected a torch.nn.Module"):
            bppsa.torch.network("resnet20", torch.ones(1, 3, 32, 32))


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Tables(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")
        self.model, self.x = MODELS["resnet20"][0](), torch.zeros(1, 3, 32, 32)
        self.convs = [(name, each) for name, each in self.model.named_modules() if isinstance(each, (nn.Conv2d, nn.Linear))]

    def pairs(self, row, kept):
        """FLOPs of the forward pass by PyTorch: a convolution of ones with ones counts the products without padding."""
        module = dict(self.convs)[row["name"]]
        if isinstance(module, nn.Linear):
            return 2 * int(kept.sum())
        ones = torch.ones(1, *row["input_shape"], dtype=torch.float64)
        return 2 * int(F.conv2d(ones, kept.double(), None, module.stride, module.padding).sum())

    def test_pruned(self):
        for _, module in self.convs:
            prune.l1_unstructured(module, "weight", 0.9)
        table = bppsa.torch.flops(self.model, self.x)
        rows = {row["name"]: row for row in table.rows}
        for name, module in self.convs:
            row, kept = rows[name], module.weight != 0
            self.assertEqual((row["weight_count"], row["kept"]), (kept.numel(), int(kept.sum())))
            self.assertEqual(row["forward_pruned"], self.pairs(row, kept))
            self.assertEqual(row["forward_unpruned"], self.pairs(row, torch.ones_like(kept)))
            self.assertEqual(row["to_weights_pruned"], row["forward_pruned"])
            self.assertEqual(row["to_input_pruned"], 0 if name == "conv1" else row["forward_pruned"])
        self.assertAlmostEqual(table.total["density"], 0.1, places=3)
        for _, module in self.convs:
            prune.remove(module, "weight")  # the zeros stay
        self.assertEqual(bppsa.torch.flops(self.model, self.x).rows, table.rows)
        masks = {f"{name}.weight": module.weight != 0 for name, module in self.convs}
        for _, module in self.convs:
            nn.init.ones_(module.weight)
        self.assertEqual(bppsa.torch.flops(self.model, self.x, mask=masks).rows, table.rows)
        dense = bppsa.torch.flops(self.model, self.x)
        self.assertEqual(dense.total["kept"], dense.total["weight_count"])
        self.assertEqual(dense.total["forward_dense"], table.total["forward_dense"])
        with self.assertRaisesRegex(bppsa.RequestError, "mask 'nothing': no weight of the model, expected one such as 'conv1"):
            bppsa.torch.flops(self.model, self.x, mask={"nothing": masks["fc.weight"]})
        with self.assertRaisesRegex(bppsa.RequestError, r"mask 'fc.weight': shape \[16, 3, 3, 3\], expected \[10, 64\]"):
            bppsa.torch.flops(self.model, self.x, mask={"fc.weight": masks["conv1.weight"]})

    def test_forms(self):
        table = bppsa.torch.flops(self.model, self.x)
        self.assertIsNone(table.scan)
        self.assertEqual(table.total["macs_dense"], 40813184)
        rows = list(csv.DictReader(io.StringIO(table.csv())))
        self.assertEqual([int(row["forward_dense"]) for row in rows], [row["forward_dense"] for row in table.rows])
        self.assertEqual(rows[0]["output_shape"], "16x32x32")
        self.assertEqual(json.loads(table.json())["total"], table.total)
        for name, sums in table.classes.items():
            only = table.only(name)
            self.assertEqual(only.total, sums)
            self.assertEqual({row["class"] for row in only.rows}, {name})
        self.assertEqual(sum(each["forward_dense"] for each in table.classes.values()), table.total["forward_dense"])
        self.assertIn("layer3.2.conv2", str(table.only("matmul")))
        self.assertNotIn("layer3.2.bn2", str(table.only("matmul")))
        self.assertIn("dense 40.8 M", str(table))
        with self.assertRaisesRegex(bppsa.RequestError, "only: 'convs', expected some of matmul, batch_norm"):
            table.only("convs")
        with tempfile.TemporaryDirectory() as folder:
            for method, name in ((table.csv, "t.csv"), (table.json, "t.json"), (table.svg, "t.svg")):
                text = method(os.path.join(folder, name))
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertEqual(file.read(), text)
        self.assertEqual(table.svg().count('class="layer"'), 22)
        self.assertIn("<title>ResNet: ", table.svg())

    def test_scan(self):
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
        table = bppsa.torch.flops(model, torch.ones(1, 2, 6, 6), up_levels=2)
        self.assertEqual(table.scan["totals"]["bp_flops"], sum(row["to_input_pruned"] for row in table.rows[:-1]))
        self.assertFalse(table.scan["estimated"])
        self.assertIn("FLOPs of each step of the scan", table.svg())  # the picture that the command draws
        self.assertGreater(table.scan["totals"]["mm"], 0)
        with self.assertRaisesRegex(bppsa.RequestError, "the memory limit is 1024"):
            bppsa.torch.flops(model, torch.ones(1, 2, 6, 6), up_levels=2, memory_limit="1K")
        vectors = bppsa.torch.flops(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)), torch.ones(4, 6))
        self.assertEqual([row["forward_dense"] for row in vectors.rows], [60, 5, 20])


if __name__ == "__main__":
    main()
