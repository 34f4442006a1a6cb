"""scan="speculative" of bppsa.torch beside scan="bp": gradients, which passes are BP, reports, states. Test cases of
test_passes.py."""
import copy
import io
import pickle
import threading
import unittest

from support import has

if has("torch"):
    import torch

    import bppsa.torch

CELLS = ("RNN", "GRU", "LSTM")
STEPS = 300


def twins(cell, *sizes, dtype=None, **options):
    """A layer by BP in chunks of time and one by BP with its weights."""
    numbers = {name: options.pop(name) for name in list(options) if name.startswith("scan")}
    found = getattr(bppsa.torch, cell)(*sizes, **{"scan": "speculative", "scan_chunks": 5, **numbers}, **options).to(dtype)
    bp = getattr(bppsa.torch, cell)(*sizes, scan="bp", **options).to(dtype)
    bp.load_state_dict(found.state_dict())
    return found, bp


def flat(results):
    """An output, and the last states behind it."""
    output, last = results
    return [output, *(last if isinstance(last, tuple) else [last])]


def gradients(layer, total, *inputs):
    return torch.autograd.grad(total, [*inputs, *layer.parameters()])


def worst(found, expected):
    """The largest difference over the largest number, of any array."""
    return max(((one.double() - other.double()).abs().max() / (other.double().abs().max() or 1)).item()
               for one, other in zip(found, expected))


def same(found, expected):
    return all(torch.equal(one, other) for one, other in zip(found, expected))


def remembers(layer):
    """Weights of the first layer of a ReLU network with which it forgets nothing; those above forget at once."""
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            size = layer.hidden_size
            first = name.endswith("_l0")
            weight.copy_(torch.eye(size) * (1 if first else 0.1) if "_hh" in name and weight.dim() == 2 else
                         torch.full_like(weight, 3.0 if "bias_hh" in name else 0.01))
    return layer


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Speculation(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.set_num_threads(2)

    def assert_speculated(self, layer, expected):
        """Whether the passes since the last look were computed in chunks, all of them or none."""
        report = layer.report(clear=True)["backward"]
        self.assertEqual(report["speculated"], expected)
        self.assertFalse(report["given_up"])
        (self.assertLess if expected else self.assertEqual)(report["path"], report["possible"])

    def test_gradients(self):
        """Errors are at most twice those of BP in float32; in float64 both differ by roundings alone. Two layers in both
        directions, sequences of one and of several lengths, losses on outputs and last states."""
        for cell in CELLS:
            for dtype, packed in ((torch.float32, False), (torch.float64, False), (torch.float32, True)):
                layers = twins(cell, 3, 8, 2, dtype=dtype, bidirectional=True, batch_first=not packed)
                exact = copy.deepcopy(layers[1]).double()
                x = torch.randn(STEPS, 3, 3)
                start = [torch.randn(4, 3, 8) for _ in range(2 if cell == "LSTM" else 1)]
                weights, found = [torch.randn(STEPS, 3, 16), *(torch.randn_like(part) for part in start)], []
                for layer in (*layers, exact):
                    like = next(layer.parameters()).dtype
                    inputs = [tensor.to(like).requires_grad_() for tensor in (x, *start)]
                    given = torch.nn.utils.rnn.pack_padded_sequence(inputs[0], [STEPS, 211, 211]) if packed else \
                        inputs[0].transpose(0, 1)
                    results = flat(layer(given, tuple(inputs[1:]) if cell == "LSTM" else inputs[1]))
                    results[0] = torch.nn.utils.rnn.pad_packed_sequence(results[0])[0] if packed else results[0].transpose(0, 1)
                    total = sum((weight.to(like) * result).sum() for weight, result in zip(weights, results))
                    found.append(gradients(layer, total, *inputs))
                self.assert_speculated(layers[0], True)
                if dtype is torch.float64:
                    self.assertLess(worst(found[0], found[1]), 1e-14, cell)
                else:
                    self.assertLess(worst(found[0], found[2]), 2 * worst(found[1], found[2]), (cell, packed))
                self.assertFalse(same(found[0], found[1]))

    def test_gradients_of_inputs_are_exact(self):
        """Where an input or an initial state requires a gradient and the loss misses a step, all gradients are BP's, bit for bit;
        where neither does, the first layer is not computed by BP."""
        def only_last(results):
            return results[0][-1].sum()

        def only_states(results):
            return sum(result.square().sum() for result in results[1:])

        def all_but_one(results):
            used = torch.ones(STEPS, 2, 1)
            used[77, 1] = 0
            return (used * results[0]).square().sum() + only_states(results)

        def everywhere(results):
            return results[0].square().sum() + only_states(results)

        draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # in which gradients of early steps do not underflow
        for cell in CELLS:
            for several in (False, True):
                layers = twins(cell, 3, 4, 2 if several else 1, dtype=torch.float64, bidirectional=several)
                below = torch.nn.Linear(3, 3).double()
                for wanted in ("x", "start", "nothing") if several else ("x", "start", "below", "nothing"):
                    for loss in (only_last, only_states, all_but_one, everywhere):
                        x = draw(STEPS, 2, 3).requires_grad_(wanted == "x")
                        start = [draw(4 if several else 1, 2, 4).requires_grad_(wanted == "start")
                                 for _ in range(2 if cell == "LSTM" else 1)]
                        inputs = {"x": [x], "start": start, "below": list(below.parameters()), "nothing": []}[wanted]
                        found = []
                        for layer in layers:
                            given = below(x) if wanted == "below" else x
                            results = flat(layer(given, tuple(start) if cell == "LSTM" else start[0]))
                            found.append(gradients(layer, loss(results), *inputs))
                        speculates = wanted == "nothing" or loss is everywhere
                        self.assert_speculated(layers[0], speculates)
                        self.assertTrue(same(*found) or speculates, (cell, several, wanted, loss.__name__))
                        self.assertLess(worst(*found), 1e-13)
                        if wanted in ("x", "start") and not several:  # gradients of the first step, which are not 0
                            self.assertTrue(all(bool((each[:1] != 0).any()) for each in found[0][:len(inputs)]))

    def test_one_graph_with_several_losses(self):
        """Layers learn from each backward pass alone whether they must be BP."""
        layers, x = twins("GRU", 3, 4, 3), torch.randn(STEPS, 2, 3, requires_grad=True)
        seeds = {"last": torch.zeros(STEPS, 2, 4), "all": torch.randn(STEPS, 2, 4)}
        seeds["last"][-1] = 1
        expected = {}
        for name, seed in seeds.items():
            outputs = [layer(x)[0] for layer in layers]
            expected[name] = [torch.autograd.grad(output, [x, *layer.parameters()], seed)
                              for layer, output in zip(layers, outputs)]
        self.assertTrue(same(*expected["last"]))
        self.assertFalse(same(*expected["all"]))
        layer, wrong = layers[0], []
        output = layer(x)[0]

        def work():
            for name in ("last", "all", "last", "all"):
                found = torch.autograd.grad(output, [x, *layer.parameters()], seeds[name], retain_graph=True)
                if not same(found, expected[name][0]):
                    wrong.append(name)

        work()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_gradient_that_comes_back_in_an_earlier_stretch(self):
        """A loss on the last state of the longer of two sequences: behind the end of the other one its gradient all but vanishes,
        in front of that it grows by 1.5 a step, until it is nearly all of the gradient."""
        layer, bp = twins("RNN", 1, 4, scan_warm_up=6)
        with torch.no_grad():
            for weight in layer.parameters():
                weight.copy_(1.5 * torch.eye(4) if weight.shape == (4, 4) else torch.full_like(weight, weight.dim() - 1))
        bp.load_state_dict(layer.state_dict())
        x = torch.zeros(180, 2, 1)  # states are 0 there
        x[150:] = 0.2
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [180, 150])
        found = [torch.autograd.grad(each(packed)[1][0, 0].sum(), each.bias_hh_l0)[0] for each in (layer, bp)]
        self.assertGreater(found[1].abs().min().item(), 1e3)
        torch.testing.assert_close(*found, rtol=1e-5, atol=0)
        self.assertTrue(layer.report()["backward"]["speculated"])  # the earlier stretch

    def test_gradcheck(self):
        for cell in CELLS:
            layer = twins(cell, 2, 3, 2, dtype=torch.float64, scan_chunks=3, scan_warm_up=4)[0]
            x, weight = (torch.randn(15, 1, size, dtype=torch.float64) for size in (2, 3))
            self.assertTrue(torch.autograd.gradcheck(lambda x: (weight * layer(x)[0]).sum(), x.requires_grad_()))
            self.assertTrue(layer.report()["backward"]["speculated"])

    def test_threads_of_torch_do_not_change_a_bit(self):
        layer, x = twins("LSTM", 3, 16, 2)[0], torch.randn(STEPS, 4, 3, requires_grad=True)
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(gradients(layer, layer(x)[0].square().sum(), x))
        self.assert_speculated(layer, True)
        self.assertTrue(same(found[0], found[1]) and same(found[0], found[2]))

    def test_tolerance(self):
        """0 is BP; a large one accepts every difference, and says so."""
        exact, bp = twins("GRU", 3, 8, scan_tolerance=0)
        loose = twins("GRU", 3, 8, scan_tolerance=4, scan_warm_up=0)[0]
        loose.load_state_dict(bp.state_dict())
        x = torch.randn(STEPS, 2, 3)
        found = [gradients(layer, layer(x)[0].sum()) for layer in (exact, bp, loose)]
        self.assertTrue(same(found[0], found[1]))
        self.assertIsNone(exact.report()["backward"])
        self.assertGreater(worst(found[2], found[1]), 1e-6)
        report = loose.report()["backward"]
        self.assertTrue(1e-6 < report["perturbation"] < report["gap"] <= 4)
        self.assertLess(worst(found[2], found[1]), 4)

    def test_reports(self):
        """Sums over passes that were planned in chunks; two shapes by turns, and calls without gradients."""
        layer, x = twins("GRU", 3, 8, forward="speculative")[0], torch.randn(900, 1, 3)
        self.assertEqual(layer.report(), {"forward": None, "backward": None})
        for _ in range(2):
            for steps in (STEPS, 4, 900):
                layer(x[:steps])[0].square().sum().backward()
        with torch.no_grad():
            layer(x)
        report = layer.report(clear=True)
        forward, backward = report["forward"], report["backward"]
        self.assertEqual(list(forward), ["plan", "speculated", "passes", "path", "possible", "work", "rounds", "mended", "gap",
                                         "reseeded", "tails"])
        self.assertEqual(list(backward), ["plan", "speculated", "passes", "path", "possible", "work", "rounds", "mended", "gap",
                                          "given_up", "perturbation"])
        self.assertRegex(backward["plan"], "speculative, 5 chunks, warm-up .*, tolerance 2.4e-07")
        self.assertEqual((backward["passes"], backward["possible"]), (6, 2 * (STEPS + 4 + 900)))
        self.assertEqual((forward["passes"], forward["possible"]), (5, 2 * STEPS + 3 * 900))
        for each in (forward, backward):
            self.assertTrue(each["speculated"] and 0 < each["path"] < each["possible"] and 1 < each["work"] < 2 and each["gap"] > 0)
        self.assertLess(backward["gap"], 2.4e-7)
        self.assertLess(backward["perturbation"], backward["gap"])
        self.assertEqual(layer.report(), {"forward": None, "backward": None})

    def test_pauses(self):
        """A layer that forgets nothing is left to BP for a while, and no other one is; copies go on where the module is."""
        layer, bp = twins("RNN", 4, 4, 2, nonlinearity="relu", scan_chunks=4)
        bp.load_state_dict(remembers(layer).state_dict())
        x = torch.rand(STEPS, 1, 4)

        def once(layer):
            return gradients(layer, layer(x)[0].sum())

        for passes in range(3):
            self.assertEqual([state[:2] for state in layer.scan_state], [[passes, 0], [0, 0]])
            once(layer)
        self.assertEqual([state[:2] for state in layer.scan_state], [[3, 100], [0, 0]])
        stream, begun = io.BytesIO(), twins("RNN", 4, 4, 2, nonlinearity="relu", scan_chunks=4)[0]
        torch.save(layer, stream)
        stream.seek(0)
        begun.load_state_dict(layer.state_dict())
        begun.scan_state = layer.scan_state
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), begun]
        if not torch.__version__.startswith("1."):
            copies.append(torch.load(stream, weights_only=False))
        states = layer.scan_state
        layer.report(clear=True)
        expected = once(layer)
        self.assertTrue(STEPS < layer.report()["backward"]["path"] < 1.5 * STEPS)  # BP of one, chunks of the other
        for other in copies:
            self.assertEqual(other.scan_state, states)
            self.assertTrue(same(once(other), expected))
            self.assertEqual(other.scan_state, layer.scan_state)
        self.assertEqual(layer.scan_state[0][1], 99)
        x.requires_grad_()  # a pass that has to be BP counts for no pause
        torch.autograd.grad(layer(x)[0][-1].sum(), x)
        self.assertEqual(layer.scan_state[0][1], 99)

    def test_modules_that_were_saved_without_these_numbers(self):
        layer, x = bppsa.torch.GRU(3, 4, scan="bp"), torch.randn(5, 2, 3)
        for name in ("scan_chunks", "scan_warm_up", "scan_tolerance"):
            del layer.__dict__[name]
        older = pickle.loads(pickle.dumps(layer))
        self.assertTrue(torch.equal(older(x)[0], layer(x)[0]))
        self.assertNotIn("scan_chunks", repr(older))

    def test_numbers(self):
        layer = bppsa.torch.LSTM(3, 4, scan="speculative", scan_chunks=torch.tensor(7), scan_warm_up=0, scan_tolerance=1e-3)
        self.assertIn("scan='speculative', scan_chunks=7, scan_warm_up=0, scan_tolerance=0.001, forward=", repr(layer))
        self.assertNotIn("scan_chunks", repr(bppsa.torch.LSTM(3, 4, scan="speculative")))
        for options, kind, sentence in (
                ({"scan_chunks": 0}, ValueError, "scan_chunks is 0, expected 1 or more"),
                ({"scan_chunks": 2 ** 63}, ValueError, "scan_chunks is 9223372036854775808, expected"),
                ({"scan_chunks": True}, TypeError, "scan_chunks is a bool, expected a whole number or None"),
                ({"scan_warm_up": -1}, ValueError, "scan_warm_up is -1, expected 0 or more"),
                ({"scan_warm_up": 1.5}, TypeError, "scan_warm_up is a float, expected a whole number or None"),
                ({"scan_tolerance": "tight"}, TypeError, "scan_tolerance is a str, expected a number or None"),
                ({"scan_tolerance": float("nan")}, ValueError, "scan_tolerance is nan, expected 0 or more"),
                ({"scan_chunks": 4, "scan": "bp"}, ValueError, "scan_chunks is 4 beside scan='bp', expected scan='speculative'"),
                ({"scan_warm_up": 4, "scan": "auto"}, ValueError, "scan_warm_up is 4 beside scan='auto', expected")):
            with self.assertRaisesRegex(kind, "bppsa.torch.GRU: " + sentence):
                bppsa.torch.GRU(3, 4, **{"scan": "speculative", **options})
        layer.scan_chunks = "many"
        with self.assertRaisesRegex(TypeError, "bppsa.torch.LSTM: scan_chunks is a str, expected a whole number"):
            layer(torch.randn(5, 2, 3))
        for wrong in ([], [[0, 0]], [[0, 0, -1]], [[0, 0, 0.5]], [[0, 0, 0]] * 2):
            with self.assertRaisesRegex(ValueError, "scan_state is .*, expected 1 lists of three whole numbers of 0 or more"):
                layer.scan_state = wrong
        with self.assertRaisesRegex(bppsa.RequestError, "method 'speculative', expected auto, linear"):
            bppsa.torch.scan(torch.ones(2, 1, 1), None, torch.ones(1, 1), method="speculative")

    def test_grad_of_the_program(self):
        weights = {f"gru.{name}": weight.detach() for name, weight in bppsa.torch.GRU(3, 8).named_parameters()}
        weights.update({"linear.weight": torch.randn(5, 8), "linear.bias": torch.zeros(5)})
        x, labels = torch.randn(STEPS, 2, 3), torch.randint(5, (STEPS, 2))
        found, bp = (bppsa.grad("gru", weights, x, labels, loss="all", **options)
                     for options in ({"backward": "speculative", "backward_chunks": 5}, {"backward": "bp"}))
        self.assertLess(worst(*([torch.from_numpy(each[name]) for name in weights] for each in (found, bp))), 3e-6)
        self.assertFalse(all((found[name] == bp[name]).all() for name in weights))
