"""Runs `bench ranks` over MPI between two network namespaces, and holds the order of the methods against the model's.

    python3 bench/scripts/rank_network.py build/cpu/tests/slow_ranks bench/results/rank_network.json

Every second rank is in the other namespace, behind a pair of virtual Ethernet devices whose rate `tc tbf` limits; all messages
travel over TCP. One run has the limited link alone; in the others ranks also send every message 20 ms late. bench ranks
verifies all gradients. With late messages the methods of as many ranks have to be ordered by time as the model orders them, where
its times differ by a tenth or more. --quick has one short run whose times are not judged. Exits 1 where they are not, 77 where this
machine has no root, no namespaces or no mpirun.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import results_file
from program import executable, plain_parser

NET = "10.77.%d." % (os.getpid() % 250)
NAMES = ["bppsa%da" % os.getpid(), "bppsa%db" % os.getpid()]
DELAY = 0.02  # seconds
APART = 1.1  # two predictions tell methods apart if one is so many times the other

# What mpirun calls instead of ssh: AGENT ADDRESS COMMAND ..; each namespace gets a host name of its own.
AGENT = """#!/bin/sh
case $1 in *.1) name=%s ;; *) name=%s ;; esac
shift
exec ip netns exec $name unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' $name "$@"
""" % tuple(NAMES)


def skip(why):
    print("rank_network: skipped: " + why)
    sys.exit(77)


def call(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextlib.contextmanager
def network(rate):
    """two namespaces, joined by a pair of devices that send at most so much"""
    made = []
    try:
        for i, name in enumerate(NAMES):
            done = call("ip", "netns", "add", name)
            if done.returncode:
                skip("no network namespaces: " + done.stdout.strip())
            made.append(name)
        devices = [name + "v" for name in NAMES]
        commands = ["ip link add %s type veth peer name %s" % tuple(devices)]
        for i, (name, device) in enumerate(zip(NAMES, devices)):
            commands += ["ip link set %s netns %s" % (device, name),
                         "ip -n %s addr add %s%d/24 dev %s" % (name, NET, i + 1, device),
                         "ip -n %s link set lo up" % name, "ip -n %s link set %s up" % (name, device),
                         "ip netns exec %s tc qdisc add dev %s root tbf rate %s burst 32kbit latency 400ms" % (name, device, rate)]
        for command in commands:
            done = call(*command.split())
            if done.returncode:
                skip("%s: %s" % (command, done.stdout.strip()))
        yield
    finally:
        for name in made:
            call("ip", "netns", "del", name)


def bench(program, agent, ranks, delay, options):
    """the document of bench ranks on so many ranks, every second one in the other namespace"""
    subnet = NET + "0/24"
    command = ["ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', NAMES[0], "mpirun",
               "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
               "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet, "--mca", "oob_tcp_if_include", subnet,
               "--host", "%s1:%d,%s2:%d" % (NET, ranks, NET, ranks), "--map-by", "node", "--bind-to", "none", "--oversubscribe",
               "-n", str(ranks), os.path.abspath(program), str(delay), "bench", "ranks", "--threads", "1", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.exit("rank_network: exit %d: %s" % (done.returncode, done.stdout[:200] + done.stderr))
    document = json.loads(done.stdout)
    document.update({"delay_s": delay, "options": options})
    return document


def pairs(document):
    """the pairs of rows of as many ranks that the model tells apart, the faster one by the model in front"""
    rows = [row for row in document["rows"] if row["ranks"] > 1 and row["model_s"] is not None]
    for one in rows:
        for other in rows:
            same = all(one[key] == other[key] for key in ("network", "ranks"))
            if same and one["model_s"] * APART < other["model_s"]:
                yield one, other


def name_of(row):
    return "%s %s %s" % (row["network"], row["share"], row["method"])


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("program", type=executable, help="build/cpu/tests/slow_ranks")
    parser.add_argument("out")
    parser.add_argument("--rate", default="100mbit", help="of the link, as tc writes it [100mbit]")
    parser.add_argument("--quick", action="store_true", help="one short run, 5 ms late, whose times are not judged")
    o = parser.parse_args()
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("mpirun", "openmpi-bin")):
        if shutil.which(tool) is None:
            skip("no %s (package %s)" % (tool, package))
    shape = ["--seq-len", "64", "--input", "4", "--hidden", "8", "--batch", "16"]
    runs = [(2, DELAY / 4, ["--split", "time", *shape, "--repeats", "1"])] if o.quick else [
        (4, 0, ["--seq-len", "1000", "--input", "4", "--batch", "32", "--repeats", "5"]), (8, DELAY, [*shape, "--repeats", "3"]),
        (8, DELAY, ["--split", "time", "--micro-batches", "4", *shape, "--repeats", "3"])]
    documents, wrong = [], []
    with tempfile.TemporaryDirectory() as folder, network(o.rate):
        agent = os.path.join(folder, "agent")
        with open(agent, "w", encoding="utf-8") as file:
            file.write(AGENT)
        os.chmod(agent, 0o755)
        for ranks, delay, options in runs:
            document = bench(o.program, agent, ranks, delay, options)
            compared = list(pairs(document))
            against = ["%s takes %.1f ms, %s %.1f ms on %d ranks, by the model %.1f and %.1f ms" % (
                name_of(one), 1e3 * one["median_s"], name_of(other), 1e3 * other["median_s"], one["ranks"],
                1e3 * one["model_s"], 1e3 * other["model_s"]) for one, other in compared if one["median_s"] >= other["median_s"]]
            document.update({"pairs": len(compared), "pairs_against_the_model": against})
            documents.append(document)
            wrong += against if delay > 0 and not o.quick else []
            if document["link"]["alpha_s"] < delay:
                wrong.append("a message takes %g s, less than its delay, %g s" % (document["link"]["alpha_s"], delay))
            if not compared and delay > 0 and not o.quick:
                wrong.append("the model tells no two methods apart, expected it to")
            print("%d ranks, %g ms late, %s: a message takes %.2f ms and %.1f ns a byte; of %d pairs %d as the model says" % (
                ranks, 1e3 * delay, o.rate, 1e3 * document["link"]["alpha_s"], 1e9 * document["link"]["beta_s"],
                len(compared), len(compared) - len(against)))
    results_file.write(o.out, {"bench": "rank_network", "rate": o.rate, "runs": documents})
    for line in wrong:
        print("rank_network: " + line, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
