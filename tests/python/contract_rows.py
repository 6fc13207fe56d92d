"""Rows of the contract of `mooncake.store`, and the tests of each: contract_rows_test.py compares them with the tests' docstrings,
which begin with the rows that they are for: "1.6 put_parts, trap 5: ..." is for two.

    python3 contract_rows.py     prints the table from the docstrings"""

import ast
import glob
import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))

WANTED = """
1.1 MooncakeDistributedStore, enums, closed classes, TypeError, stubs, get_alloc_func_addr, get_free_func_addr, bind_to_numa_node
1.2 layout
1.4 replica_num, nof_replica_num, dfs_replica_num, soft_pin_action, soft_pin_ttl_ms, with_hard_pin, preferred_segments
1.4 preferred_nof_segments, preferred_segment, prefer_alloc_in_same_node, data_type, group_ids, str, with_soft_pin
1.5 setup, setup local_hostname, setup metadata_server, setup global_segment_size, setup local_buffer_size, setup protocol
1.5 setup rdma_devices, setup master_server_addr, setup engine, setup enable_ssd_offload, setup ssd_offload_path, setup tenant_id
1.5 setup enable_client_http_server, setup client_http_port, setup(dict), setup(dict) sizes, setup(dict) protocol
1.5 setup(dict) rdma_devices, setup(dict) master_server_addr, setup(dict) ipc_socket_path, setup(dict) enable_ssd_offload
1.5 setup(dict) ssd_offload_path, setup(dict) tenant_id, setup(dict) enable_client_http_server, setup(dict) client_http_port
1.5 setup_dummy, init_all, health_check, close, get_hostname, alloc_from_mem_pool, mount_segment, unmount_segment
1.5 allocate_and_mount_segment, unmount_and_free_segment, unmount_local_disk_segment, get_offload_rpc_read_count, uninitialised
1.6 common value, common key, common existing key, common key being written, common no space, common no staging space
1.6 common prefer_alloc_in_same_node, common sizes, common lease
1.6 put, put_parts, put_batch, put_from, put_from_with_metadata, batch_put_from, batch_put_from_multi_buffers
1.6 upsert, upsert_from, upsert_parts, upsert_batch, batch_upsert_from
1.6 upsert absent, upsert same size, upsert different size, upsert somebody puts, upsert reader holds, upsert group
1.6 upsert hard pin, upsert soft_pin_ttl_ms
1.7 get, get_batch, get_buffer, batch_get_buffer, get_into, batch_get_into, batch_get_into_multi_buffers, get_into_ranges
1.7 BufferHandle, registration, replica choice
1.8 batch_get_session_start, batch_get_into_multi_buffer_ranges, batch_get_session_end, batch_put_session_start
1.8 batch_put_from_multi_buffer_ranges, batch_put_session_end, batch_put_session_revoke
1.9 is_exist, batch_is_exist, get_size, remove, remove_by_regex, remove_all, batch_remove, batch_replica_clear
1.10 register_buffer, unregister_buffer, dummy, device memory
1.11 get_replica_desc, batch_get_replica_desc, lease, ReplicaDescriptor, MemoryDescriptor, Descriptor, DiskDescriptor
1.15 MooncakeHostMemAllocator.alloc, MooncakeHostMemAllocator.free, MooncakeHostMemAllocator
1.16 GIL, threads, processes, close, leaks
3.3 leases
3.5 eviction
3.7 killed reader, killed writer, client's death, master's restart
"""
TRAPS = 20


def wanted():
    """Names of all rows."""
    rows = [f"trap {number}" for number in range(1, TRAPS + 1)]
    for line in WANTED.strip().splitlines():
        section, names = line.split(" ", 1)
        rows += [f"{section} {name.strip()}" for name in names.split(",")]
    return rows


def rows_of(docstring):
    """The rows that the head of a docstring names. A name without section or first word has those of the one before it."""
    known, section, first, found = set(wanted()), "", "", []
    head = " ".join((docstring or "").split())
    head = re.split(r": |:$", head, maxsplit=1)[0]
    for part in head.split(","):
        part = part.strip()
        if re.match(r"\d+\.\d+ ", part):
            section, part = part.split(" ", 1)
            first = ""
        if part.startswith("trap "):
            found.append(part)
            continue
        for name in (f"{section} {part}", f"{section} {first} {part}"):
            if name in known:
                found.append(name)
                first = part.split(" ")[0] if " " in part else first
                break
        else:
            found.append(f"{section} {part}")  # an unknown row
    return found


def tests_of(path):
    """(name of the test, docstring) of a file, without running it."""
    with open(path, encoding="utf-8") as text:
        tree = ast.parse(text.read())
    module = os.path.basename(path).removesuffix(".py")
    for suite in tree.body:
        if isinstance(suite, ast.ClassDef):
            for one in suite.body:
                if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                    yield f"{module}.{suite.name}.{one.name}", ast.get_docstring(one)


def table():
    """{row: [tests]} from the docstrings of the files in this folder."""
    rows = {}
    for path in sorted(glob.glob(os.path.join(HERE, "contract_*_test.py"))):
        if not path.endswith(("contract_rows_test.py", "contract_valgrind_test.py")):
            for test, docstring in tests_of(path):
                for row in rows_of(docstring):
                    rows.setdefault(row, []).append(test)
    return rows


def written():
    """{row: [tests]} of contract_rows.txt."""
    rows, row = {}, None
    with open(os.path.join(HERE, "contract_rows.txt"), encoding="utf-8") as text:
        for line in text:
            if line.startswith("    "):
                rows[row].append(line.strip())
            elif line.strip():
                row = line.strip()
                rows[row] = []
    return rows


if __name__ == "__main__":
    made = table()
    for row in sorted(made, key=lambda name: [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)]):
        print(row)
        for test in made[row]:
            print("    " + test)
