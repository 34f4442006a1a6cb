"""What scripts share: their options, arrays, images and networks in files, a run of the program, and where and when it ran."""
import argparse
import array
import datetime
import json
import os
import platform
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def plain_parser(description):
    """without options; its help is the script's description as it stands"""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def campaign_options(description):
    """The options of a script that tries so many random networks: COUNT OUT.json [FIRST], FIRST the first one's seed."""
    parser = plain_parser(description)
    parser.add_argument("count", type=int)
    parser.add_argument("out", metavar="OUT.json")
    parser.add_argument("first", type=int, nargs="?", default=0)
    options = parser.parse_args()
    if options.count < 1:
        parser.error("count %d, expected 1 or more" % options.count)
    return options


def turns_parser(description):
    """The options of a script that measures methods in turns at points that have names; turns_options reads them."""
    parser = plain_parser(description)
    parser.add_argument("--out", help="the JSON document")
    parser.add_argument("--points", nargs="+", metavar="POINT")
    parser.add_argument("--rounds", type=int, default=5, help="the least number of turns [5]")
    parser.add_argument("--seconds", type=float, default=5, help="of turns, for each point [5]")
    return parser


def turns_options(parser, points):
    parser.epilog = "points: " + ", ".join(points)
    options = parser.parse_args()
    for name in options.points or ():
        if name not in points:
            parser.error("--points %s: no such point, expected some of %s" % (name, ", ".join(points)))
    if options.rounds < 1:
        parser.error("--rounds is %d, expected 1 or more" % options.rounds)
    return options


def executable(path):
    """the type of an argument that names a program: its absolute path"""
    found = os.path.abspath(path)
    if os.path.isdir(found) or not os.access(found, os.X_OK):
        raise argparse.ArgumentTypeError("%s: expected a program that can be run" % path)
    return found


def built(p, build, name):
    """the absolute path of a program of the tests of a build; ends the script where it is missing"""
    try:
        return executable(os.path.join(build, "tests", name))
    except argparse.ArgumentTypeError as error:
        return p.error(error)


def add_program(p):
    """--program"""
    p.add_argument("--program", required=True, type=executable, help="the bppsa program")


def parser(description, folder):
    """--program, --folder (folder: what it is for), --threads and --out"""
    p = plain_parser(description)
    add_program(p)
    p.add_argument("--folder", required=True, help=folder)
    p.add_argument("--threads", type=int, default=2, help="[2]")
    p.add_argument("--out", help="where the JSON document goes")
    return p


def npy_header(kind, shape):
    """the bytes of a .npy file in front of its numbers"""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, tuple(shape))
    text += " " * (-(11 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def save_npy(path, kind, shape, values):
    """writes numbers of the kind <f4, <f8 or <i8 to a .npy file"""
    with open(path, "wb") as file:
        file.write(npy_header(kind, shape))
        array.array({"<f4": "f", "<f8": "d", "<i8": "q"}[kind], values).tofile(file)


def images(folder, samples):
    """the data set of so many random images [3, 32, 32] of ten classes, which it writes to the folder"""
    x, y = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
    if not os.path.exists(y):
        draw = random.Random(1)
        save_npy(x, "<f4", (samples, 3, 32, 32), (draw.uniform(-1, 1) for _ in range(samples * 3 * 32 * 32)))
        save_npy(y, "<i8", (samples,), (draw.randrange(10) for _ in range(samples)))
    return "npy:%s,%s" % (x, y)


def synthetic_images(o, samples):
    """the data set of so many synthetic images, which the program makes"""
    folder = os.path.join(o.folder, "images")
    if not os.path.exists(folder):
        run(o, "data", "cifar10", "--synthetic", "--samples", samples, "--seed", 1, "--out", folder)
    return "cifar10:" + folder


def linear_layers(o, name, count, width, function):
    """the path of a network of so many linear layers on images"""
    path = os.path.join(o.folder, name + ".json")
    layers = []
    for i in range(1, count + 1):
        layers += [{"name": "fc%d" % i, "op": "linear", "out": width}, {"name": "%s%d" % (function, i), "op": function}]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"input": [3, 32, 32], "layers": layers + [{"name": "head", "op": "linear", "out": 10}]}, file)
    return path


def run(o, *arguments, before=()):
    """what the program prints, behind the words `before`; ends the script with the program's exit status where it fails"""
    done = subprocess.run([*before, o.program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, check=False)
    return found.stdout.decode().strip()


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def where_and_when():
    """members of a result: the sources' commit, the present time, the processor"""
    return {"commit": commit(), "date": now(), "device": processor()}
