#!/usr/bin/env python3
"""Translates the kernels' PTX to C, so that the code that a driver compiles also runs on a CPU.

    ptx_to_c.py OUT.c IMAGE...

An image is PTX, or a fat binary that has some; others are left out. OUT.c has the kernels of each as functions of one lane, and a table of
all (kernels_run.c). It knows only what the kernels use: at any other instruction it exits and prints the line. A function aborts on an
access that a GPU would refuse as misaligned."""
import re
import struct
import sys

MAGIC_FATBIN = b"\x50\xed\x55\xba"
FATBIN_PTX = 1
KERNELS = ("sl_gather_kernel", "sl_scatter_kernel", "sl_hash_kernel", "sl_hash_runs_kernel")
UNSIGNED = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}
SIGNED = {8: "int8_t", 16: "int16_t", 32: "int32_t", 64: "int64_t"}
CLASSES = {"p": "pred", "rs": "b16", "r": "b32", "rd": "b64"}
SPECIAL = {"%tid.x": "t->tid", "%ntid.x": "t->ntid", "%ctaid.x": "t->ctaid", "%nctaid.x": "t->nctaid"}
BINARY = {"add": "+", "sub": "-", "mul.lo": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def texts(path):
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(MAGIC_FATBIN):
        at, = struct.unpack_from("<H", data, 6)
        while at < len(data):
            kind, _, head, length = struct.unpack_from("<HHIQ", data, at)
            if kind == FATBIN_PTX:
                yield data[at + head:at + head + length].rstrip(b"\0").decode()
            at += head + length
    elif re.search(rb"^\.version ", data, re.MULTILINE):
        yield data.decode()


class Translator:
    def __init__(self, prefix, text):
        self.prefix, self.text, self.symbols, self.param = prefix, text, {}, None

    def operand(self, name):
        name = name.strip()
        if name in SPECIAL:
            return SPECIAL[name]
        register = re.fullmatch(r"%(rd|rs|r|p)(\d+)", name)
        if register:
            return f"{register[1]}[{register[2]}]"
        if re.fullmatch(r"%\w+", name):
            return "v_" + name[1:]
        if re.fullmatch(r"-?\d+", name):
            return f"UINT64_C({int(name) & (1 << 64) - 1})"
        if re.fullmatch(r"0[xX][0-9a-fA-F]+", name):
            return f"UINT64_C({name})"
        return self.address_of(name)

    def address_of(self, name):
        if name == self.param:
            return "(uint64_t)(uintptr_t)param"
        if name in self.symbols:
            return f"(uint64_t)(uintptr_t){self.symbols[name]}"
        raise ValueError(f"operand '{name}'")

    def address(self, text):
        base, offset = re.fullmatch(r"\[([%$\w]+)(?:\+(-?\d+))?\]", text.strip()).groups()
        return f"{self.operand(base)} + UINT64_C({int(offset or 0) & (1 << 64) - 1})"

    def typed(self, name, kind):
        width = int(re.sub(r"\D", "", kind))
        return f"({(SIGNED if kind[0] == 's' else UNSIGNED)[width]})({self.operand(name)})"

    def access(self, parts, operands):
        """ld and st, of one value or a vector."""
        width = int(re.sub(r"\D", "", parts[-1])) // 8
        load = parts[0] == "ld"
        values, address = (operands[0], operands[1]) if load else (operands[1], operands[0])
        names = [name.strip() for name in values.strip("{}").split(",")]
        lines = [f"uint64_t at = {self.address(address)}; ALIGNED(at, {width * len(names)});"]
        for i, name in enumerate(names):
            kind = UNSIGNED[width * 8]
            place = f"(void *)(uintptr_t)(at + {i * width})"
            if load:
                lines.append(f"{{ {kind} got; memcpy(&got, {place}, {width}); {self.operand(name)} = got; }}")
            else:
                lines.append(f"{{ {kind} put = {self.typed(name, parts[-1])}; memcpy({place}, &put, {width}); }}")
        return "{ " + " ".join(lines) + " }"

    def move(self, operands):
        """mov, also of halves: {low, high} and back."""
        to, value = operands
        if to.startswith("{"):
            low, high = (self.operand(name) for name in to.strip("{}").split(","))
            return f"{{ uint64_t whole = {self.operand(value)}; {low} = (uint32_t)whole; {high} = (uint32_t)(whole >> 32); }}"
        if value.startswith("{"):
            low, high = (self.operand(name) for name in value.strip("{}").split(","))
            return f"{self.operand(to)} = (uint64_t)(uint32_t)({low}) | (uint64_t)(uint32_t)({high}) << 32;"
        return f"{self.operand(to)} = {self.operand(value)};"

    def arithmetic(self, parts, operands):
        kind = parts[-1]
        name = ".".join(parts[:-1])
        width = int(re.sub(r"\D", "", kind) or 1)
        to, rest = operands[0], operands[1:]
        if kind == "pred":
            values = [self.operand(value) for value in rest]
            return f"{self.operand(to)} = " + (f"!{values[0]}" if name == "not" else f"({values[0]}) {BINARY[name]} ({values[1]})") + ";"
        if name in ("add", "sub", "mul.lo", "mad.lo", "neg"):
            kind = "u" + kind[1:]  # the same bits, and no overflow in C
        a, b = (self.typed(value, kind) for value in (rest + rest)[:2])
        if name == "mul.wide":
            return f"{self.operand(to)} = (uint64_t)({a}) * ({b});"
        if name == "mul.hi":
            return f"{self.operand(to)} = (uint64_t)((unsigned __int128)({a}) * ({b}) >> 64);"
        if name == "mad.lo":
            return f"{self.operand(to)} = ({UNSIGNED[width]})({a} * {b} + {self.typed(rest[2], kind)});"
        if name in ("shl", "shr"):
            return (f"{self.operand(to)} = ({self.operand(rest[1])}) >= {width} ? 0 : "
                    f"({UNSIGNED[width]})({a} {'<<' if name == 'shl' else '>>'} ({self.operand(rest[1])}));")
        if name in ("min", "max"):
            return f"{self.operand(to)} = {a} {'<' if name == 'min' else '>'} {b} ? {a} : {b};"
        if name == "not":
            return f"{self.operand(to)} = ({UNSIGNED[width]})~{a};"
        if name == "neg":
            return f"{self.operand(to)} = ({UNSIGNED[width]})(0 - {a});"
        if name == "bfi":
            return f"{self.operand(to)} = bits_insert({a}, {b}, (uint32_t)({self.operand(rest[2])}), (uint32_t)({self.operand(rest[3])}));"
        if name == "prmt":
            return f"{self.operand(to)} = bytes_permute({a}, {b}, (uint32_t)({self.operand(rest[2])}));"
        return f"{self.operand(to)} = ({UNSIGNED[width]})({a} {BINARY[name]} {b});"

    def instruction(self, opcode, operands):
        parts = opcode.split(".")
        if parts[0] in ("ld", "st"):
            return self.access(parts, operands)
        if parts[0] == "mov":
            return self.move(operands)
        if parts[0] == "cvta":
            return f"{self.operand(operands[0])} = {self.operand(operands[1])};"
        if parts[0] == "cvt":
            return f"{self.operand(operands[0])} = ({UNSIGNED[int(parts[1][1:])]}){self.typed(operands[1], parts[2])};"
        if parts[0] == "setp":
            a, b = (self.typed(value, parts[2]) for value in operands[1:])
            return f"{self.operand(operands[0])} = {a} {COMPARE[parts[1]]} {b};"
        if parts[0] == "selp":
            return f"{self.operand(operands[0])} = {self.operand(operands[3])} ? {self.operand(operands[1])} : {self.operand(operands[2])};"
        if parts[0] == "bra":
            return f"goto {operands[0].replace('$', 'D')};"
        if parts[0] == "ret":
            return "return;"
        if opcode == "shfl.sync.bfly.b32":
            to = operands[0].split("|")[0]
            return f"{self.operand(to)} = lanes_swap(t, {', '.join('(uint32_t)(' + self.operand(value) + ')' for value in operands[1:])});"
        return self.arithmetic(parts, operands)

    def line(self, text):
        if text in "{}":
            return text
        register = re.fullmatch(r"\.reg \.(\w+)\s+%(\w+)(?:<(\d+)>)?;", text)
        if register:
            kind = "bool" if register[1] == "pred" else UNSIGNED[int(register[1][1:])]
            return f"{kind} {register[2]}[{register[3]}] = {{0}};" if register[3] else f"{kind} v_{register[2]};"
        label = re.fullmatch(r"([$\w]+):", text)
        if label:
            return f"{label[1].replace('$', 'D')}:;"
        found = re.fullmatch(r"(?:@(!?)%p(\d+)\s+)?([a-z][a-z0-9_.]*)\s*(.*);", text)
        if found is None:
            raise ValueError(f"line '{text}'")
        operands = [value.strip() for value in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", found[4])] if found[4] else []
        statement = self.instruction(found[3], [value for value in operands if value])
        return f"if ({found[1]}p[{found[2]}]) {statement}" if found[2] else statement

    def constants(self):
        for name, length, values in re.findall(r"\.const \.align \d+ \.b8 (\w+)\[(\d+)\] = \{([\d, ]+)\};", self.text):
            self.symbols[name] = f"{self.prefix}_{name}"
            yield f"static const _Alignas(16) unsigned char {self.symbols[name]}[{length}] = {{{values}}};"

    def kernel(self, name):
        head = re.search(rf"\.entry {name}\(\s*\.param [^\]]*?(\w+)\[\d+\]\s*\)[^{{]*", self.text)
        self.param = head[1]
        depth, at = 0, head.end()
        yield f"static void {self.prefix}_{name}(const unsigned char *param, struct lane *t)"
        for raw in self.text[at:].split("\n"):
            text = re.sub(r"//.*", "", raw).strip()
            if not text or text.startswith((".loc", ".pragma")):
                continue
            yield self.line(text)
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    lines, rows = ['#include "tests/gpu/ptx_lane.h"'], []
    for path in sys.argv[2:]:
        for text in texts(path):
            version = re.search(r"^\.version ([\d.]+)$", text, re.MULTILINE)[1]
            prefix = "ptx" + version.replace(".", "_")
            translator = Translator(prefix, text)
            lines += translator.constants()
            for name in KERNELS:
                lines += translator.kernel(name)
            rows.append(f'    {{"PTX {version}", ' + ", ".join(f"{prefix}_{name}" for name in KERNELS) + "},")
    lines += ["const struct ptx_kernels ptx_kernels[] = {", *rows, "};", f"const unsigned ptx_kernel_count = {len(rows)};"]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
