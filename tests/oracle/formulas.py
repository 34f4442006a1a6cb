#!/usr/bin/env python3
"""Holds the rows of bppsa oracle against ParaDL's table 3, written down a second time: formulas.py PROGRAM FOLDER.

Models and systems are those that the program saves. Every strategy of the table, and the recurrent ones, are computed here from
the formulas of docs/oracle.md for each case below; time, memory and limit have to agree. Of simulated pipelines is checked what
must hold whatever the schedule: no epoch is shorter than the work of its busiest processor, and GPipe needs the memory of the
formula for the same cut. Exits 1 with the first rows that differ, or where a formula met fewer than three cases.
"""
import json
import math
import os
import subprocess
import sys

ITEM = 4  # bytes: delta
# batch, processors, micro-batches, samples, scaling, group, collective
CASES = [
    (32, 1, None, None, "strong", None, "ring"),
    (64, 2, None, None, "weak", None, "ordered"),
    (64, 4, None, None, "strong", None, "tree"),
    (64, 6, 3, None, "strong", None, "auto"),
    (8, 12, 2, None, "weak", None, "ring"),
    (64, 64, None, None, "strong", None, "auto"),
    (2, 64, None, None, "weak", 4, "ring"),
    (16, 10, 5, 1000, "strong", 5, "ordered"),
    (2, 16, None, None, "strong", None, "tree"),
    (7, 3, None, 333, "weak", None, "auto"),
]
SIMULATED = ["model-parallel", "fast-forward", "vanilla", "gpipe", "1f1b", "zb-h1", "gems", "chimera", "pipedream", "2bw",
             "spectrain", "interleaved", "modulo"]


class Case:
    def __init__(self, program, model, system, case):
        self.model, self.system = model, system
        self.batch, self.p, micro, samples, self.scaling, self.group, self.how = case
        self.samples = samples or max(model["samples"], self.batch * self.p)
        command = [program, "oracle", model["file"], system["file"], "--processors", self.p, "--batch", self.batch, "--samples",
                   self.samples, "--scaling", self.scaling, "--collective", self.how, "--json"]
        command += ["--micro-batches", micro] if micro else []
        command += ["--group", self.group] if self.group else []
        self.command = " ".join(map(str, command))
        document = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)
        self.rows = {row["strategy"]: row for row in document["rows"]}
        self.layers = model["layers"]
        self.all_batch = self.batch if self.scaling == "strong" else self.batch * self.p
        self.iterations = self.samples / self.all_batch
        self.forward = [self.seconds(l["flops"], l["x"] + l["y"]) for l in self.layers]
        twice = [2 if l["w"] > 0 else 1 for l in self.layers]
        self.backward = [self.seconds(t * l["flops"], t * (l["x"] + l["y"])) for t, l in zip(twice, self.layers)]
        self.update = [self.seconds(4 * (l["w"] + l["bias"]), 5 * (l["w"] + l["bias"])) for l in self.layers]
        self.passes = sum(self.forward) + sum(self.backward)
        self.weights = sum(l["w"] for l in self.layers) * ITEM
        self.weighted = [l for l in self.layers if l["kind"] in ("conv", "linear")]
        self.gather = next((i for i, l in enumerate(self.layers) if l.get("gather")), len(self.layers))

    def seconds(self, flops, elements):
        peak = self.system["peak_flops"] * self.system["efficiency"]
        return max(flops / peak, elements * ITEM / self.system["memory_bandwidth"])

    def link(self, p):
        level = next(l for l in self.system["levels"] if l["processors"] >= p)
        return level["alpha_s"], 1 / level["bandwidth"], level["contention"]

    def allreduce(self, p, size, over=None, phi=1):
        """Among p processors, over the level that joins `over`."""
        alpha, beta, _ = self.link(over or p)
        beta *= phi
        if p == 1:
            return 0
        depth = math.ceil(math.log2(p))
        ring = 2 * (p - 1) * (alpha + size / p * beta)
        low, high = 1, 1 << 40  # the tree's number of chunks: its time falls, then rises
        chunked = lambda k: 2 * (depth + k) * (alpha + size / k * beta)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if chunked(middle) <= chunked(middle + 1) else (middle + 1, high)
        return {"ring": ring, "tree": chunked(low), "auto": min(ring, chunked(low)),
                "ordered": 2 * depth * (alpha + size * beta)}[self.how]

    def allgather(self, p, segment):
        alpha, beta, _ = self.link(p)
        return (p - 1) * (alpha + segment * beta)

    def memory(self, batch, activations=1, weights=1, layers=None):
        elements = sum(2 * batch * activations * (l["x"] + l["y"]) + 2 * l["w"] * weights + l["bias"]
                       for l in (self.layers if layers is None else layers))
        return self.system["memory_reuse"] * ITEM * elements

    # ---- the table: compute with waiting, communication, memory, own limit; self.waiting is set where there is some ----

    def serial(self):
        samples = self.samples
        return samples * self.passes + samples / self.batch * sum(self.update), 0, self.memory(self.batch), 1

    def data(self):
        compute = self.samples / self.p * self.passes + self.iterations * sum(self.update)
        return (compute, self.iterations * self.allreduce(self.p, self.weights), self.memory(self.all_batch / self.p),
                self.batch if self.scaling == "strong" else math.inf)

    def exchange(self, p, batch, channel):
        """Equations 15 and 19: an allgather and an allreduce at each border between layers with weights."""
        seconds = 0
        for before, behind in zip(self.weighted, self.weighted[1:]):
            gathered, reduced = (behind["x"], before["y"]) if channel else (before["y"], behind["x"])
            seconds += self.allgather(p, batch * gathered * ITEM / p) + self.allreduce(p, batch * reduced * ITEM)
        return seconds

    def filter(self, channel=False):
        iterations = self.samples / self.batch
        compute = self.samples / self.p * self.passes + iterations / self.p * sum(self.update)
        memory = self.memory(self.batch, 1, 1 / self.p)
        limit = min((l["out"][0] for l in self.weighted), default=1)
        if channel:  # the first layer with weights stays whole
            first, more = self.layers.index(self.weighted[0]), 1 - 1 / self.p
            compute += more * (self.samples * (self.forward[first] + self.backward[first]) + iterations * self.update[first])
            memory += self.system["memory_reuse"] * ITEM * 2 * self.weighted[0]["w"] * more
            limit = min((l["in"][0] for l in self.weighted[1:]), default=1)
        return compute, iterations * self.exchange(self.p, self.batch, channel), memory, limit

    def channel(self):
        return self.filter(True)

    def hybrid_limit(self, most):
        if self.group and self.group > most:
            return 0
        return self.batch * (self.group or most) if self.scaling == "strong" else math.inf

    def data_filter(self):
        groups = self.rows["data+filter"]["groups"]
        p2, batch = self.p // groups, self.all_batch / groups
        phi = self.link(self.p)[2] if p2 > 1 else 1
        compute = self.samples / self.p * self.passes + self.iterations / p2 * sum(self.update)
        exchange = self.exchange(p2, batch, False) + self.allreduce(groups, self.weights / p2, self.p, phi)
        return (compute, self.iterations * exchange, self.memory(batch, 1, 1 / p2),
                self.hybrid_limit(min(l["out"][0] for l in self.weighted)))

    def border(self, layer, shape, grid):
        elements = 0
        for axis in range(3):
            positions = (max(0, layer["kernel"][axis] - layer["stride"][axis]) + 1) // 2
            others = [shape[1 + a] / grid[a] for a in range(3) if a != axis]
            elements += shape[0] * positions * others[0] * others[1] if grid[axis] > 1 else 0
        return elements

    def halo(self, p):
        """Of the grid with the smallest borders: their elements, and the layers that have one."""
        layers, best = self.layers[:self.gather], None
        divisors = [d for d in range(1, p + 1) if p % d == 0]
        for grid in [(a, b, p // a // b) for a in divisors for b in divisors if p // a % b == 0]:
            if all(l["in"][1 + a] >= grid[a] for l in layers for a in range(3)):
                borders = [self.border(l, l["in"], grid) + self.border(l, l["out"], grid) for l in layers]
                found = sum(borders), sum(b > 0 for b in borders)
                best = found if best is None or found[0] < best[0] else best
        return best

    def spatial(self, groups=1):
        p2, batch = self.p // groups, self.all_batch / groups
        alpha, beta, _ = self.link(p2)
        share = [1 / p2 if i < self.gather else 1 for i in range(len(self.layers))]
        compute = sum(self.samples / groups * s * (f + b) for s, f, b in zip(share, self.forward, self.backward))
        exchange = self.allreduce(p2, self.weights) + self.allreduce(groups, self.weights, self.p)
        if p2 > 1:
            elements, layers = self.halo(p2)
            exchange += 2 * (2 * alpha * layers + batch * ITEM * beta * elements)
            exchange += self.allgather(p2, batch * ITEM * self.layers[self.gather - 1]["y"] / p2) if self.gather < len(share) else 0
        memory = self.memory(batch, 1 / p2, 1, self.layers[:self.gather]) + self.memory(batch, 1, 1, self.layers[self.gather:])
        positions = min(math.prod(l["in"][1:]) for l in self.layers[:self.gather])
        return compute + self.iterations * sum(self.update), self.iterations * exchange, memory, positions

    def data_spatial(self):
        values = self.spatial(self.rows["data+spatial"]["groups"])
        return values[:3] + (self.hybrid_limit(values[3]),)

    def stages(self, row):
        ends = row.get("cut", []) + [len(self.layers)]
        return [range(begin, end) for begin, end in zip([0] + ends, ends)]

    def pipeline(self):
        row = self.rows["pipeline"]
        s, stages = row["micro_batches"], self.stages(row)
        alpha, beta, _ = self.link(self.p)
        longest = lambda costs: max(sum(costs[i] for i in stage) for stage in stages)
        compute = self.samples * (self.p + s - 1) / s * (longest(self.forward) + longest(self.backward))
        self.waiting = self.samples * (self.p - 1) / s * (longest(self.forward) + longest(self.backward))
        sent = max((self.layers[stage[-1]]["y"] for stage in stages[:-1]), default=0)
        exchange = 2 * self.iterations * (self.p + s - 2) * (alpha + self.all_batch / s * sent * ITEM * beta) if self.p > 1 else 0
        memory = max(self.memory(self.all_batch, 1, 1, [self.layers[i] for i in stage]) for stage in stages)
        return compute + self.iterations * longest(self.update), exchange, memory, len(self.layers)

    # ---- recurrent layers over time ----

    def time(self, how):
        p, s, batch = self.p, self.rows["time-bp"]["micro_batches"], self.batch
        iterations, slots = self.samples / batch, (p + s - 1) / s
        alpha, beta, _ = self.link(p)
        flop = 1 / (self.system["peak_flops"] * self.system["efficiency"])
        compute, exchange, elements = iterations * sum(self.update), iterations * self.allreduce(p, self.weights), 0
        for layer, forward, backward in zip(self.layers, self.forward, self.backward):
            recurrent, h = layer["kind"] == "recurrent", layer["out"][0]
            scan = recurrent and how != "bp"
            elements += 2 * batch * (layer["x"] + layer["y"]) / (p if recurrent else 1) + 2 * layer["w"] + layer["bias"]
            elements += batch * h * h if scan else 0
            compute += self.samples * (forward * slots + backward * (1 if scan else slots)) / p if recurrent else \
                self.samples * (forward + backward)
            if not recurrent or p == 1:
                continue
            self.waiting += self.samples * (slots - 1) * (forward + (0 if scan else backward)) / p
            relay, vector, matrix = (alpha + batch * n * ITEM * beta for n in (h / s, h, h * h))
            exchange += iterations * (1 if scan else 2) * (p + s - 2) * relay
            apply, full, rounds = batch * flop * 2 * h * h, batch * flop * 2 * h ** 3, math.ceil(math.log2(p))
            if scan:  # two processors multiply nothing; the first one always walks
                products = batch * flop * layer["in"][1] / p * layer["product_flops"] if p > 2 else 0
                compute += iterations * max(batch * backward / p, products)
            if scan and (how == "chunked" or p == 2):
                compute += iterations * (p - 2) * apply
                exchange += iterations * (p - 1) * vector
            elif scan:  # the gradient comes before or after the last matrix
                compute += iterations * ((rounds - 2) * full + (rounds - 1) * apply)
                exchange += iterations * ((rounds - 2) * matrix + (rounds - 1) * vector)
                if matrix > apply + vector:
                    exchange += iterations * matrix
                else:
                    compute, exchange = compute + iterations * apply, exchange + iterations * vector
        return compute, exchange, self.system["memory_reuse"] * ITEM * elements, self.layers[0]["in"][1]


def strategies(case):
    if any(l["kind"] == "recurrent" for l in case.layers):
        table = {"serial": case.serial, "data": case.data, "pipeline": case.pipeline}
        table.update({"time-" + how: lambda how=how: case.time(how) for how in ("bp", "chunked", "blelloch")})
        return table
    return {"serial": case.serial, "data": case.data, "spatial": case.spatial, "filter": case.filter, "channel": case.channel,
            "data+filter": case.data_filter, "data+spatial": case.data_spatial, "pipeline": case.pipeline}


def limit_of(case, name, own):
    """No mini-batch is larger than the data set."""
    strong = case.scaling == "strong" or name in ("serial", "filter", "channel") or name.startswith("time")
    return min(own, math.inf if strong else case.samples // case.batch)


def check(case, met, wrong):
    def compare(name, what, found, expected):
        if not abs(found - expected) <= 1e-9 * abs(expected):
            wrong.append(f"{case.command}: {name}: {what} {found!r}, expected {expected!r}")

    serial = case.serial()[0]
    for name, formula in strategies(case).items():
        row = case.rows[name]
        if row["time_s"] is None:
            continue
        case.waiting = 0
        compute, communication, memory, limit = formula()
        compare(name, "compute_s", row["compute_s"], compute - case.waiting)
        compare(name, "waiting_s", row["waiting_s"], case.waiting)
        compare(name, "speedup", row["speedup"], serial / row["time_s"])
        compare(name, "communication_s", row["communication_s"], communication)
        compare(name, "memory_bytes", row["memory_bytes"], memory)
        compare(name, "limit", row["limit"], limit_of(case, name, limit))
        met[name] = met.get(name, 0) + 1
    for name in SIMULATED:
        row = case.rows[name]
        if row["time_s"] is None:
            continue
        compare(name, "time_s", row["time_s"], row["compute_s"] + row["communication_s"] + row["waiting_s"])
        stages = [[i] for i in range(len(case.layers))] if name == "modulo" else case.stages(row)
        work = max(sum(case.forward[i] + case.backward[i] for stage in stages[w::case.p] for i in stage) for w in range(case.p))
        two = 2 if name in ("gems", "chimera") else 1  # a worker has two stages, of half of the samples each
        if row["time_s"] * two < case.samples * work * (1 - 1e-9):
            wrong.append(f"{case.command}: {name}: {row['time_s']!r} s, expected at least {case.samples * work!r}")
        if name == "gpipe":
            compare(name, "memory_bytes", row["memory_bytes"], case.rows["pipeline"]["memory_bytes"])
        met[name] = met.get(name, 0) + 1


def saved(program, folder, what, name):
    path = os.path.join(folder, name + ".json")
    model, system = (name, "h200x4") if what == "model" else ("lenet5", name)
    subprocess.run([program, "oracle", model, system, "--processors", "1", "--strategy", "serial", "--save-" + what, path],
                   check=True, capture_output=True)
    document = json.load(open(path))
    document["file"] = path
    return document


def main():
    program, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    met, wrong = {}, []
    for system in ("paradl-v100", "dgx-h100"):
        place = saved(program, folder, "system", system)
        for model in ("lenet5", "vgg16", "resnet50", "cosmoflow256", "gru"):
            chain = saved(program, folder, "model", model)
            for case in CASES:
                check(Case(program, chain, place, case), met, wrong)
    for line in wrong[:20]:
        print(line)
    few = [name for name in met if met[name] < 3]
    print(f"{sum(met.values())} rows, {len(met)} strategies, {len(wrong)} numbers differ", *few)
    return 1 if wrong or few or len(met) != 24 else 0


if __name__ == "__main__":
    sys.exit(main())
