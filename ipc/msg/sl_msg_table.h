/* ipc/msg/sl_msg_table.h - the one table of messages. Structs, encoder, decoder, validation and the
 * documentation (`sluicectl messages`) come from it, so they cannot drift.
 *
 * Wire form: a frame is one msgpack array [envelope, body]. The envelope is an array: version,
 * type, op_id, trace_id, sender, seq, reply_to, budget_ns, code, text. The body is an array of the
 * message's fields in the order of the table; list items are arrays likewise. Fields are only ever
 * appended: a decoder ignores what follows the fields it knows and leaves what is missing at
 * zero/empty when the sender's version is older. Numbers are not reused. A reply has its request's
 * number + 1; a reply whose code is not SL_OK may have an empty body.
 *
 * F(KIND, name, min, max, help)
 *   U64    min..max bound the value
 *   BOOL   min and max are 0, 1
 *   TEXT   UTF-8 without NUL; min..max bound its bytes
 *   BIN    min..max bound its bytes
 *   U64S   min..max bound the count
 *   TEXTS  min..max bound the count; each 1..1024 bytes
 * L(name, item, max, help)  a list of 0..max items of the item table */
#ifndef SL_MSG_TABLE_H
#define SL_MSG_TABLE_H

/* A release that appends a field has another number than the release before it, since a missing
 * field is refused in messages of the own version. 7 is the first of 0.3. 0.2 writes 5 and reads 6:
 * the two do not understand each other. */
#define SL_WIRE_VERSION     7
#define SL_WIRE_VERSION_MIN 6
#define SL_BATCH_MAX        65536
#define SL_TEAM_FIRST       (UINT64_C(1) << 63) /* numbers of teams begin here; of engines below */
#define SL_EVENT_BYTES      64                  /* of an event's IPC handle */
#define SL_TOKENS_BYTES_MAX (16u << 20)         /* 4 Mi tokens of 4 bytes */
#define SL_PREFILL_MAX      (UINT64_C(1) << 40) /* tokens, tokens a second */
#define SL_SESSION_LANES    64u

/* fields of several tables */
#define SL_FIELDS_DIGEST(F, what)           \
    F(U64, digest_low, 0, UINT64_MAX, what) \
    F(U64, digest_high, 0, UINT64_MAX, "its high half")
#define SL_FIELDS_OBJECT(F)                                      \
    F(TEXT, key, 1, 1024, "object key")                          \
    F(TEXT, group_key, 0, 1024, "MODEL/BLOCK, empty: none")      \
    F(U64, part_index, 0, 511, "index of the part in the group") \
    F(U64, part_count, 0, 512, "parts of the group, 0: none")
#define SL_FIELDS_HANDLE(F, kind_min)                       \
    F(U64, handle_kind, kind_min, 7, "enum sl_memory_kind") \
    F(U64, pid, 0, UINT32_MAX, "process that holds fd")     \
    F(U64, fd, 0, UINT32_MAX, "descriptor in that process") \
    F(BIN, handle, 0, 64, "device IPC handle")
#define SL_FIELDS_POOL(F)                                         \
    F(TEXT, name, 1, 63, "deployment: name of one model replica") \
    F(U64, rank, 0, 63, "rank")                                   \
    F(TEXT, pool, 1, 31, "pool name: [a-z0-9_-]")

#define SL_ITEM_WANT(F, L)                                                       \
    F(TEXT, key, 1, 1024, "object key")                                          \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "size of the value")             \
    F(U64, group, 0, SL_BATCH_MAX, "0: none, else 1 + index into groups")        \
    F(U64, part_index, 0, 511, "index of the part in the group")                 \
    F(TEXT, writer, 0, 31, "actor that will write the bytes; empty: the sender") \
    F(TEXT, bundle, 0, 255, "values that are leased and evicted together; empty: none")
#define SL_ITEM_GROUP(F, L)                                                                        \
    F(TEXT, key, 1, 1024, "MODEL/BLOCK")                                                           \
    F(U64, part_count, 1, 512, "parts that make the block visible")                                \
    F(U64, transient_ns, 0, UINT64_MAX, "time to live after the commit; 0: no limit")              \
    F(U64, parent_hash, 0, UINT64_MAX, "sl_key_hash of the block before it in its chain; 0: none") \
    F(U64, stored_count, 0, UINT32_MAX, "blocks that its request stores; 0: not known")            \
    F(BOOL, cut, 0, 1, "it is an incomplete last block")                                           \
    F(U64, hint, 0, 2, "state of its session: 0 not known, 1 it ends, 2 it continues")             \
    F(U64, priority, 0, 3, "0 not set, 1 low, 2 normal, 3 high")                                   \
    F(U64, keep_ns, 0, SL_KEEP_NS_MAX,                                                             \
      "time for which it is evicted after others, if that pays; 0: none")
#define SL_ITEM_GRANT(F, L)                                                                 \
    F(U64, code, 0, 255, "SL_OK granted, SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_NO_SPACE, ...") \
    F(U64, ref, 0, UINT32_MAX, "record of the claim")                                       \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent")                           \
    F(U64, arena, 0, 65535, "arena id")                                                     \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                       \
    F(U64, busy_ns, 0, UINT64_MAX, "with SL_ERR_BUSY: time within which the other reservation ends")
#define SL_ITEM_CLAIM(F, L)                                       \
    F(U64, ref, 1, UINT32_MAX, "record of the claim")             \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent") \
    SL_FIELDS_DIGEST(F, "digest of the value")
#define SL_ITEM_NAMED(F, L)             \
    F(TEXT, key, 1, 1024, "object key") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "size of the value")
#define SL_ITEM_POOL(F, L)                                          \
    F(TEXT, name, 1, 31, "pool name, part of the keys: [a-z0-9_-]") \
    F(U64, kind, 0, 255, "enum sl_pool_kind")                       \
    F(U64, part_count, 0, 64, "parts of a block (slices of heads or layers); 0: one per rank")
#define SL_ITEM_REGION(F, L)                                                                      \
    F(U64, rank, 0, 63, "rank")                                                                   \
    F(U64, pool, 0, 7, "index into pools")                                                        \
    F(U64, layer, 0, 4095,                                                                        \
      "position in the part, which is the sequence of the pieces of its layers")                  \
    SL_FIELDS_HANDLE(F, 0)                                                                        \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the layer starts in the handle's memory")          \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the layer's tensor")                            \
    F(U64, block_stride_bytes, 1, UINT64_MAX, "from block i to block i + 1")                      \
    F(U64, piece_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of one block in this layer; <= stride")     \
    F(U64, block_count, 1, UINT32_MAX, "blocks; (count - 1) * stride + piece <= length")          \
    F(U64, pool_epoch, 0, UINT64_MAX, "of the memory in the table of pools; 0: not in the table") \
    F(BIN, gpu, 0, 16, "UUID of its GPU; empty: none, or not known")                              \
    F(U64, part, 0, 63, "for a pool with part_count: part of the layer")                          \
    F(U64, fragment_bytes, 0, SL_VALUE_BYTES_MAX,                                                 \
      "0: a piece is contiguous; else length of its runs, which add up to piece_bytes")           \
    F(U64, fragment_stride_bytes, 0, UINT64_MAX, "from the start of one run to the next")         \
    F(U64, start_time, 0, UINT64_MAX, "with pid, identifies the process; 0: not known")           \
    F(U64, member, 0, UINT64_MAX,                                                                 \
      "in a reply for a team: engine id of the registration that the region is from")
#define SL_ITEM_PIECE(F, L)                                                               \
    F(U64, pool, 0, 7, "index into the engine's pools")                                   \
    F(U64, device_block, 0, UINT32_MAX, "block id on the device")                         \
    F(U64, arena, 0, 65535, "arena id")                                                   \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                     \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the part")                      \
    F(U64, ref, 0, UINT32_MAX, "record; out checks that its claim still exists; look: 0") \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent; look: 0")                \
    F(U64, first_layer, 0, 4095, "only layers [first, end) of the part; 0, 0: all of it") \
    F(U64, layer_end, 0, 4096, "with first_layer")                                        \
    F(U64, part, 0, 63, "for a pool with part_count: index of the part")                  \
    SL_FIELDS_DIGEST(F, "in: digest of the whole part, to check the copy; 0, 0: not known")
#define SL_ITEM_SPILL(F, L)                                           \
    SL_FIELDS_OBJECT(F)                                               \
    F(U64, arena, 0, 65535, "arena id")                               \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value") \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")     \
    SL_FIELDS_DIGEST(F, "digest of the value")
#define SL_ITEM_SPILLED(F, L)                         \
    F(U64, code, 0, 255, "SL_OK: durable")            \
    F(U64, generation, 1, UINT64_MAX, "of the item")  \
    F(U64, segment, 0, UINT32_MAX, "log file number") \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the log file")
#define SL_ITEM_FILL(F, L)                                                   \
    F(TEXT, key, 1, 1024, "object key, checked against the record on disk")  \
    F(U64, segment, 0, UINT32_MAX, "log file number")                        \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the log file") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value")        \
    SL_FIELDS_DIGEST(F, "digest of the value")                               \
    F(U64, arena, 0, 65535, "target arena")                                  \
    F(U64, offset_bytes, 0, UINT64_MAX, "target offset in the arena's data") \
    F(U64, ref, 1, UINT32_MAX, "record of the claim")                        \
    F(U64, generation, 1, UINT64_MAX, "generation of the target extent")
#define SL_ITEM_FOUND(F, L)                                           \
    SL_FIELDS_OBJECT(F)                                               \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value") \
    SL_FIELDS_DIGEST(F, "digest of the value")                        \
    F(U64, segment, 0, UINT32_MAX, "log file number")                 \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the log file")
#define SL_ITEM_FORGET(F, L)                                                 \
    F(TEXT, key, 1, 1024, "object key")                                      \
    F(U64, segment, 0, UINT32_MAX, "log file number; 0: any")                \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the log file") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value")
#define SL_ITEM_CONTRIBUTION(F, L)                                         \
    F(TEXT, name, 1, 255, "of the contribution")                           \
    F(U64, number, 0, 63, "of the contribution, in records")               \
    F(U64, length_bytes, 0, UINT64_MAX, "bytes added to the ceiling")      \
    F(U64, used_bytes, 0, UINT64_MAX, "bytes of the values charged to it") \
    F(U64, value_count, 0, UINT64_MAX, "number of values charged to it")   \
    F(TEXT, process, 0, 31, "its owner; empty: none, it is lasting")       \
    F(U64, pid, 0, UINT32_MAX, "of that process")

#define SL_ITEM_SEEN(F, L)                                                                      \
    F(U64, code, 0, 255, "SL_OK: exists, or was removed; SL_ERR_NOT_FOUND, SL_ERR_LEASED, ...") \
    F(U64, length_bytes, 0, SL_VALUE_BYTES_MAX, "size of the value")                            \
    F(BOOL, in_memory, 0, 1, "a copy is in memory")                                             \
    F(BOOL, on_disk, 0, 1, "a durable copy exists")                                             \
    F(U64, node, 0, 64, "0: none, else 1 + index into nodes")

#define SL_ITEM_EXPLANATION(F, L)                                                          \
    F(U64, code, 0, 255, "SL_OK: exists; SL_ERR_BUSY: is being written; SL_ERR_NOT_FOUND") \
    F(U64, ago_ns, 0, UINT64_MAX, "time since its value left; 0: not known")               \
    F(TEXT, text, 0, 255, "where it is, or why it is missing; for people")

#define SL_ITEM_FACT(F, L)                        \
    F(TEXT, name, 1, 31, "property of the model") \
    F(TEXT, value, 0, 255, "its value in the identity")

#define SL_ITEM_RUN(F, L)                                                            \
    F(U64, count, 1, UINT32_MAX, "number of consecutive blocks")                     \
    F(U64, outcome, 0, 15, "enum sl_run_outcome: where they were, or their outcome") \
    F(U64, at_ns, 0, UINT64_MAX, "loaded: time from the op's start until they were on the device")

#define SL_ITEM_SOUGHT(F, L)            \
    F(TEXT, key, 1, 1024, "object key") \
    F(BOOL, part, 0, 1, "true: part of a block, false: object; one never matches the other")
#define SL_ITEM_PLACE(F, L)                                                                   \
    F(U64, code, 0, 255,                                                                      \
      "SL_OK pinned, SL_ERR_NOT_FOUND, SL_ERR_LIMIT ask again, SL_ERR_CANCELLED after a gap") \
    F(U64, arena, 0, 65535, "arena id of the holder")                                         \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                         \
    F(U64, length_bytes, 0, SL_VALUE_BYTES_MAX, "size of the value")                          \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent")                             \
    SL_FIELDS_DIGEST(F, "digest of the value")
#define SL_ITEM_WINDOW(F, L)                                 \
    F(U64, arena, 0, 65535, "arena id")                      \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of its data") \
    F(BIN, key, 1, 65536, "fabric key: only this peer may READ this arena remotely")
#define SL_ITEM_NODE(F, L)                                                                       \
    F(TEXT, name, 1, 31, "name of the peer")                                                     \
    F(TEXT, address, 0, 128, "where it accepts requests; empty: it only sends them")             \
    F(TEXT, state, 0, 15, "alive, away, broken; of a node that is no peer: asks, or the reason") \
    F(U64, incarnation, 0, UINT64_MAX, "of its transporter; 0: not known")                       \
    F(U64, round_trip_ns, 0, UINT64_MAX, "of the last PEER_HELLO")                               \
    F(U64, last_seen_ago_ns, 0, UINT64_MAX, "since its last answer or request")                  \
    F(U64, read_bytes, 0, UINT64_MAX, "read from it")                                            \
    F(U64, read_values, 0, UINT64_MAX, "read from it")                                           \
    F(U64, failures, 0, UINT64_MAX, "requests and transfers that failed")                        \
    F(U64, pinned_values, 0, UINT64_MAX, "values of this node that it has pinned")               \
    F(TEXT, link, 0, 15, "data connection: up, connecting or down")                              \
    F(TEXT, source, 0, 15, "found by: peers (the setting) or directory; empty: its request")

/* Where a rank has its part of one block in device memory. */
#define SL_ITEM_SPOT(F, L)                                                               \
    F(U64, engine_id, 1, UINT64_MAX, "the rank's registration; a team has one per rank") \
    F(U64, rank, 0, 63, "rank")                                                          \
    F(U64, pool, 0, 7, "index into the registration's pools")                            \
    F(U64, part, 0, 63, "for a pool with part_count: index of the part")                 \
    F(U64, device_block, 0, UINT32_MAX, "block id on the device")                        \
    F(U64, item, 0, SL_BATCH_MAX, "index of its item in the list of the message")
#define SL_ITEM_ARRIVED(F, L)                                              \
    F(U64, part, 0, 4095, "part of the hand-over, numbered as in BRING")   \
    F(U64, part_offset_bytes, 0, SL_VALUE_BYTES_MAX, "offset in the part") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the piece")      \
    SL_FIELDS_DIGEST(F, "digest of the piece")
#define SL_ITEM_DOOR(F, L)                         \
    F(U64, part, 0, 4095, "part of the hand-over") \
    F(BIN, key, 1, 65536, "fabric key: only this peer may READ this part remotely")
#define SL_ITEM_TICKET(F, L)                                                                  \
    F(BIN, bytes, 1, 128, "as decode's coordinator made it")                                  \
    F(U64, first_block, 0, UINT32_MAX, "decode already has the blocks before it")             \
    F(U64, block_end, 1, UINT32_MAX, "blocks of the input, including an incomplete last one") \
    F(U64, keys_low, 0, UINT64_MAX, "digest of model and last key, low half")                 \
    F(U64, keys_high, 0, UINT64_MAX, "high half")
#define SL_ITEM_EVENT(F, L)     \
    F(U64, rank, 0, 63, "rank") \
    F(BIN, handle, 64, 64, "as cuIpcGetEventHandle gives it")
#define SL_ITEM_RECEIPT(F, L)                                                                 \
    F(U64, handover_id, 1, UINT64_MAX, "hand-over")                                           \
    F(U64, block_end, 1, UINT32_MAX, "blocks of the input, including an incomplete last one") \
    F(U64, keys_low, 0, UINT64_MAX, "digest of model and last key, low half")                 \
    F(U64, keys_high, 0, UINT64_MAX, "high half")                                             \
    F(TEXT, node, 0, 31, "name of prefill's node; empty: it has none")
/* One row of the table of pools: the device memory of one pool of one rank, and its users. */
#define SL_ITEM_HOLDING(F, L)                                                                  \
    SL_FIELDS_POOL(F)                                                                          \
    F(U64, state, 0, 3, "0 absent, 1 allocating, 2 ready, 3 revoking")                         \
    F(U64, epoch, 0, UINT64_MAX, "of this memory; never reused")                               \
    F(U64, length_bytes, 0, UINT64_MAX, "bytes")                                               \
    F(BOOL, sluice, 0, 1, "true: a swapper allocated it; false: its owner did")                \
    F(TEXT, owner, 0, 31, "process that allocates or allocated it")                            \
    F(U64, owner_pid, 0, UINT32_MAX, "its process; 0: it exited, others still map the memory") \
    F(U64, mapper_count, 0, UINT32_MAX, "processes that map it, swappers included")            \
    F(TEXT, mappers, 0, 1023, "their names, for people; truncated if there are many")          \
    F(U64, waiter_count, 0, UINT32_MAX, "requests that wait for a change of its state")

/* X(item, TABLE) makes struct sl_item_ITEM */
#define SL_ITEM_TABLE(X)                  \
    X(want, SL_ITEM_WANT)                 \
    X(group, SL_ITEM_GROUP)               \
    X(grant, SL_ITEM_GRANT)               \
    X(claim, SL_ITEM_CLAIM)               \
    X(named, SL_ITEM_NAMED)               \
    X(pool, SL_ITEM_POOL)                 \
    X(region, SL_ITEM_REGION)             \
    X(piece, SL_ITEM_PIECE)               \
    X(spill, SL_ITEM_SPILL)               \
    X(spilled, SL_ITEM_SPILLED)           \
    X(fill, SL_ITEM_FILL)                 \
    X(found, SL_ITEM_FOUND)               \
    X(forget, SL_ITEM_FORGET)             \
    X(explanation, SL_ITEM_EXPLANATION)   \
    X(run, SL_ITEM_RUN)                   \
    X(fact, SL_ITEM_FACT)                 \
    X(sought, SL_ITEM_SOUGHT)             \
    X(place, SL_ITEM_PLACE)               \
    X(window, SL_ITEM_WINDOW)             \
    X(node, SL_ITEM_NODE)                 \
    X(slot, SL_ITEM_SPOT)                 \
    X(arrived, SL_ITEM_ARRIVED)           \
    X(door, SL_ITEM_DOOR)                 \
    X(receipt, SL_ITEM_RECEIPT)           \
    X(ticket, SL_ITEM_TICKET)             \
    X(event, SL_ITEM_EVENT)               \
    X(holding, SL_ITEM_HOLDING)           \
    X(contribution, SL_ITEM_CONTRIBUTION) \
    X(seen, SL_ITEM_SEEN)

#define SL_BODY_EMPTY(F, L) F(U64, unused, 0, 0, "always 0")

/* any actor */
#define SL_BODY_PONG(F, L)                         \
    F(TEXT, name, 1, 31, "actor")                  \
    F(U64, pid, 0, UINT32_MAX, "process")          \
    F(BOOL, draining, 0, 1, "accepts no new work") \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot; 0: not known")
/* every process -> registrar: announces itself, again with every heartbeat. A client names its pin
 * file. Wherever messages have both, pid and start_time name a process, or a client by its pin file
 * (struct sl_proc_id). */
#define SL_BODY_HELLO(F, L)                                     \
    F(TEXT, role, 1, 31, "registrar ... coordinator, client")   \
    F(TEXT, name, 1, 31, "actor or client name")                \
    F(U64, pid, 1, UINT32_MAX, "process")                       \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot") \
    F(TEXT, segment, 0, 63, "name of its pin file in the shm directory; empty: none")
#define SL_BODY_HELLO_REPLY(F, L)                                                       \
    F(U64, boot_generation, 0, UINT64_MAX, "first generation of this registrar's life") \
    F(U64, arena_count, 0, 65535, "arenas: files arena.0 ...")                          \
    F(U64, rank_count, 0, 64, "ranks of the node")                                      \
    F(BOOL, disk, 0, 1, "the node has a disk tier")                                     \
    F(U64, pid_space, 0, UINT64_MAX, "namespace of the process ids that the node uses")
/* client, coordinator -> registrar */
#define SL_BODY_RESERVE(F, L)                                                              \
    F(BOOL, wait, 0, 1, "wait for space until the budget ends, but not for other writers") \
    F(U64, ttl_ns, 0, UINT64_MAX, "0: setting reservation_ttl; for drafts put_release")    \
    L(items, want, SL_BATCH_MAX, "objects")                                                \
    L(groups, group, SL_BATCH_MAX, "blocks that the objects are parts of")                 \
    F(U64, hold_id, 0, UINT64_MAX,                                                         \
      "0: none; else the blocks (granted or existing) are not evicted until HOLD ends it") \
    F(U64, hold_ns, 0, UINT64_MAX, "or until this time has passed")                        \
    F(BOOL, hard_pin, 0, 1, "the values are never evicted")                                \
    F(U64, soft_pin_ns, 0, UINT64_MAX,                                                     \
      "time from the commit for which they are evicted only when nothing else is left")    \
    F(BOOL, replace, 0, 1, "an existing value stays until the commit replaces it")         \
    F(TEXTS, contributions, 0, 16, "contributions to charge, in order of preference")      \
    F(BOOL, draft, 0, 1, "the sender pins its extents whenever it writes to them")
#define SL_BODY_RESERVE_REPLY(F, L) L(items, grant, SL_BATCH_MAX, "one for each object")
#define SL_BODY_COMMIT(F, L)                                                                 \
    F(BOOL, tail_first, 0, 1,                                                                \
      "the items are a chain, head first; LRU treats its tail as older than its head")       \
    L(items, claim, SL_BATCH_MAX, "extents whose bytes are complete")                        \
    L(named, named, SL_BATCH_MAX, "for extents granted in advance: what each is; else none") \
    F(U64, ahead_count, 0, SL_BATCH_MAX, "extents wanted in advance; fewer may be granted")  \
    F(U64, ahead_bytes, 0, SL_VALUE_BYTES_MAX, "size of the values to put into them")
#define SL_BODY_COMMIT_REPLY(F, L)                                                                 \
    F(U64S, codes, 0, SL_BATCH_MAX,                                                                \
      "one sl_err for each item; for an extent granted in advance SL_OK and SL_ERR_STALE end the " \
      "grant, other codes leave it open")                                                          \
    L(ahead, grant, SL_BATCH_MAX, "extents without a key")
/* Without items: everything that was granted to the op and is not committed; its writers have not
 * begun. Its requests that wait for space end without an answer. An older registrar ignores this
 * form. */
#define SL_BODY_ABORT(F, L) L(items, claim, SL_BATCH_MAX, "reservations whose writer has stopped")
/* swapper -> registrar: values that it has loaded, and that must not be read again */
#define SL_BODY_DAMAGED(F, L) \
    L(items, claim, SL_BATCH_MAX, "committed values that do not match their digests")
#define SL_BODY_CODES(F, L) F(U64S, codes, 0, SL_BATCH_MAX, "one sl_err for each item asked")
/* Reads values that are not in memory: the registrar from disks, transporter.0 from other nodes.
 * worth, edge: hits that a block in memory yields in 10^12 seconds. */
#define SL_BODY_BRING(F, L)                                                                                  \
    F(TEXTS, keys, 0, SL_BATCH_MAX, "all parts of every group, in their order, then objects")                \
    L(groups, group, SL_BATCH_MAX, "blocks to which the first keys belong; only from other nodes")           \
    F(BOOL, ahead, 0, 1, "only from disks: no request waits; only units on disk make room")                  \
    F(U64, for_ns, 0, SL_KEEP_NS_MAX,                                                                        \
      "ahead: for a session expected within this time; 0: a prefetch by request, whatever it costs")         \
    F(U64, worth, 0, UINT64_MAX, "worth of these blocks in memory")                                          \
    F(BOOL, chain, 0, 1,                                                                                     \
      "they are a chain of blocks, head first; blocks after a missing one are not wanted")                   \
    F(BOOL, sure, 0, 1, "a peer reported that it has them: peers that had not are asked again")              \
    L(slots, slot, SL_BATCH_MAX,                                                                             \
      "only from other nodes: pool slots to write to instead of memory; key by key, one at least, disjoint") \
    F(U64, chain_bytes, 0, UINT64_MAX,                                                                       \
      "with for_ns: missing bytes of these and the rest of their chain; 0: only of these")                   \
    F(BIN, ticket, 0, 128,                                                                                   \
      "a hand-over: pool slots of its parts, without keys; prefill announces their bytes")                   \
    F(TEXT, from, 0, 31, "with ticket: the only node that may lend; empty: the first to do so")
#define SL_BODY_BRING_REPLY(F, L)                                                                          \
    F(U64S, codes, 0, SL_BATCH_MAX,                                                                        \
      "one per key; into pool slots: SL_OK: written to all of its own, else their contents are undefined") \
    F(U64, edge, 0, UINT64_MAX, "worth of the next victim of eviction; 0: not known")                      \
    F(U64, full, 0, 1000, "used share of the memory for sessions' blocks, in thousandths")                 \
    F(U64, copied_bytes, 0, UINT64_MAX, "into pool slots: extra copies within the node")
#define SL_BODY_REMOVE(F, L)                                                          \
    F(TEXTS, keys, 0, SL_BATCH_MAX, "object keys; a block key removes all its parts") \
    F(BOOL, all, 0, 1, "removes everything; keys is then empty")                      \
    F(BOOL, respect_leases, 0, 1, "leased values stay (SL_ERR_LEASED); not with all") \
    F(BOOL, report_busy, 0, 1, "values being written are SL_ERR_BUSY, else SL_ERR_NOT_FOUND")
/* client -> registrar: memory that a process lends to the node as long as it lives */
#define SL_BODY_CONTRIBUTE(F, L)                                \
    F(TEXT, name, 1, 255, "of the contribution, on this node")  \
    F(U64, length_bytes, 1, UINT64_MAX, "added to the ceiling") \
    F(BOOL, lasting, 0, 1, "stays when the sender ends")
#define SL_BODY_WITHDRAW(F, L)            F(TEXT, name, 1, 255, "of the contribution")
#define SL_BODY_CONTRIBUTIONS_REPLY(F, L) L(items, contribution, 64, "all of them")
#define SL_BODY_ENGINE(F, L)                                                                        \
    F(U64, engine_id, 0, UINT64_MAX, "0 in a registration; never reused")                           \
    F(U64, pid, 1, UINT32_MAX, "engine process: its death ends the registration")                   \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot")                                     \
    F(TEXT, name, 1, 63, "for people")                                                              \
    F(TEXT, model, 32, 32, "model identity: 32 hex digits, first part of the keys")                 \
    F(TEXT, key_format, 1, 31, "as in sluicectl keys --format")                                     \
    F(TEXT, seed, 0, 255, "seed of the key format")                                                 \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                                             \
    F(U64, world, 1, 64, "ranks")                                                                   \
    L(pools, pool, 8, "pools of every rank")                                                        \
    L(regions, region, 65536, "memory of every rank, pool and layer")                               \
    F(TEXT, visible_devices, 0, 255,                                                                \
      "CUDA_VISIBLE_DEVICES of the engine; empty: not set or not known")                            \
    F(U64, team, 0, UINT64_MAX,                                                                     \
      "0: all ranks are here; else 2^63 or above: one process per rank, registrations of one team " \
      "are one engine, which ENGINE_GET finds by this number when all ranks are registered")        \
    L(facts, fact, 64, "properties that its model identity includes, for people")
#define SL_BODY_ENGINE_ID(F, L)     F(U64, engine_id, 1, UINT64_MAX, "engine")
#define SL_BODY_ENGINES_REPLY(F, L) F(U64S, engine_ids, 0, 1024, "current registrations")
/* registrar -> writer: stop accessing these extents; answered when nothing is written for them */
#define SL_BODY_FENCE(F, L)       \
    L(items, claim, SL_BATCH_MAX, \
      "claims that ended; empty: all of the op id; with op id 0 as well: all of the sender")

/* coordinator -> registrar: blocks that RESERVE holds for a hand-over may be evicted again; or a
 * restarted coordinator asks whether prefill had committed */
#define SL_BODY_HOLD(F, L)                                                         \
    F(U64, hold_id, 1, UINT64_MAX, "as in RESERVE")                                \
    F(U64, keys_low, 0, UINT64_MAX,                                                \
      "digest of the last key; to end it for a peer: of the key of a held block; " \
      "low half; 0, 0: to end it for this node")                                   \
    F(U64, keys_high, 0, UINT64_MAX, "high half")                                  \
    F(BOOL, ask, 0, 1, "asks whether all of it is committed and held; false: ends it")

/* Device memory of pools, each with one owner. client -> registrar */
#define SL_BODY_POOL_TAKE(F, L)                                \
    SL_FIELDS_POOL(F)                                          \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the memory") \
    F(BOOL, sluice, 0, 1,                                      \
      "the rank's swapper allocates it, answered when it is ready; false: the sender does")
#define SL_BODY_POOL_AWAIT(F, L) \
    SL_FIELDS_POOL(F)            \
    F(U64, epoch, 0, UINT64_MAX, \
      "0: waits until it is ready, and the sender maps it; else until the memory of this epoch ends")
#define SL_BODY_POOL_STATE(F, L)                                                        \
    F(U64, state, 0, 3, "0 absent, 1 allocating, 2 ready, 3 revoking")                  \
    F(U64, epoch, 0, UINT64_MAX, "of this memory; never reused")                        \
    F(U64, length_bytes, 0, UINT64_MAX, "bytes")                                        \
    F(U64, handle_kind, 0, 7, "ready: enum sl_memory_kind")                             \
    F(U64, pid, 0, UINT32_MAX, "process that holds fd")                                 \
    F(U64, start_time, 0, UINT64_MAX, "of that process, clock ticks since boot")        \
    F(U64, fd, 0, UINT32_MAX, "descriptor in that process")                             \
    F(BIN, handle, 0, 64, "device IPC handle")                                          \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the pool starts in the handle's memory") \
    F(BOOL, sluice, 0, 1, "a swapper allocated it")                                     \
    F(U64, inode, 0, UINT64_MAX, "of the file of fd; 0: not known")                     \
    F(BIN, gpu, 0, 16, "UUID of its GPU; empty: none, or not known")
#define SL_BODY_POOL_READY(F, L)                                                        \
    F(U64, epoch, 1, UINT64_MAX, "as POOL_TAKE gave it")                                \
    SL_FIELDS_HANDLE(F, 1)                                                              \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the pool starts in the handle's memory") \
    F(U64, inode, 0, UINT64_MAX, "of the file of fd; 0: not known")                     \
    F(BIN, gpu, 0, 16, "UUID of its GPU; empty: none, or not known")
#define SL_BODY_POOL_MAPPED(F, L)                              \
    F(U64, epoch, 1, UINT64_MAX, "of the memory")              \
    F(BOOL, has_fd, 0, 1, "the mapper has a descriptor of it") \
    F(U64, fd, 0, UINT32_MAX, "by which others may map it when the previous one is closed")
#define SL_BODY_POOL_RELEASE(F, L) \
    SL_FIELDS_POOL(F)              \
    F(U64, epoch, 0, UINT64_MAX, "of the memory; 0: any, and waiting also ends")
#define SL_BODY_POOL_EPOCH(F, L)  F(U64, epoch, 1, UINT64_MAX, "of the memory")
#define SL_BODY_POOLS_REPLY(F, L) L(pools, holding, 65536, "all of them")
/* registrar -> the rank's swapper */
#define SL_BODY_POOL_MAKE(F, L)                            \
    F(U64, epoch, 1, UINT64_MAX, "of the memory")          \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes, all zero") \
    F(TEXT, name, 1, 63, "deployment, for people")         \
    F(TEXT, pool, 1, 31, "pool name, for people")
#define SL_BODY_POOL_MAKE_REPLY(F, L)                               \
    SL_FIELDS_HANDLE(F, 0)                                          \
    F(U64, inode, 0, UINT64_MAX, "of the file of fd; 0: not known") \
    F(BIN, gpu, 0, 16, "UUID of its GPU; empty: none")
/* transporter -> the rank's swapper: asks for a descriptor by which the NIC reaches device
 * memory */
#define SL_BODY_POOL_EXPORT(F, L)              \
    F(U64, engine_id, 1, UINT64_MAX, "engine") \
    F(U64, rank, 0, 63, "rank")                \
    SL_FIELDS_HANDLE(F, 0)                     \
    F(U64, length_bytes, 1, INT64_MAX, "bytes of that memory, from its start")
#define SL_BODY_POOL_EXPORT_REPLY(F, L)                                                       \
    F(U64, pid, 0, UINT32_MAX, "process that serves it once, for seconds (sl_descriptors.h)") \
    F(U64, number, 0, UINT64_MAX, "of the socket")                                            \
    F(U64, name, 0, UINT64_MAX, "address to request")                                         \
    F(U64, life, 0, UINT64_MAX, "likewise")                                                   \
    F(U64, length_bytes, 0, UINT64_MAX, "bytes of the dmabuf to request")                     \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the memory begins in the dmabuf")
/* anyone -> registrar: why is this a miss */
#define SL_BODY_EXPLAIN(F, L)       F(TEXTS, keys, 1, 64, "keys of objects, parts or blocks")
#define SL_BODY_EXPLAIN_REPLY(F, L) L(items, explanation, 64, "one for each key")

/* client -> coordinator */
#define SL_FIELDS_HASHED(F)                                                   \
    F(BIN, hashes, 0, 4194304,                                                \
      "instead of tokens: keys of the blocks, from first_block on, as bytes") \
    F(U64, hash_bytes, 0, 64, "of each")                                      \
    F(U64S, pool_blocks, 0, SL_BATCH_MAX,                                     \
      "with hashes: [pool][block], instead of device_blocks, which is then empty")
/* The prompt, and its first block that is stored or loaded. */
#define SL_FIELDS_PROMPT(F, before)                                                         \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                              \
    F(BIN, tokens, 0, SL_TOKENS_BYTES_MAX,                                                  \
      "token ids, u32 little-endian, from the start of the prompt")                         \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block] as in sluicectl keys; empty: none") \
    F(U64, first_block, 0, UINT32_MAX, "blocks before this one are " before)                \
    F(BOOL, partial, 0, 1, "includes an incomplete last block")
/* Hints of the engine for the blocks of an op and their session. */
#define SL_FIELDS_SAID(F)                                                             \
    F(U64, session, 0, 2, "0 not known, 1 it ends with this request, 2 it continues") \
    F(U64, priority, 0, 3, "of the blocks: 0 not set, 1 low, 2 normal, 3 high")       \
    F(U64, keep_ns, 0, SL_KEEP_NS_MAX,                                                \
      "time for which they and those before them are evicted after others, if that pays; 0: none")
/* The session, and the time until its next request. */
#define SL_FIELDS_SESSION(F)                                                                      \
    F(U64, session_id, 0, UINT64_MAX, "hash of the session's name, by sl_key_hash; 0: not known") \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX,                                                           \
      "expected time from the end of this request to the session's next one; 0: not known")
/* The request that the op belongs to. */
#define SL_FIELDS_ORIGIN(F)                                                               \
    F(TEXT, request, 0, 127, "the engine's name of its request, for people; empty: none") \
    F(TEXT, traceparent, 0, 55, "W3C trace context of the caller; empty: none")
#define SL_BODY_STORE(F, L)                                                                       \
    SL_FIELDS_PROMPT(F, "not stored")                                                             \
    F(U64S, device_blocks, 0, SL_BATCH_MAX,                                                       \
      "device block of every block from first_block on, the same on all ranks")                   \
    F(U64, handover_id, 0, UINT64_MAX,                                                            \
      "0: none; else all blocks or none, held until decode has them")                             \
    F(U64, hold_ns, 0, UINT64_MAX, "time that decode may take; 0: setting handover_hold")         \
    L(ticket, ticket, 4, "one: lend to decode; none: through storage")                            \
    F(U64S, layer_ends, 0, 32768,                                                                 \
      "by layers: for each layer of the forward pass, for each pool, the number of the pool's "   \
      "layers that belong to it or an earlier one; empty: all at once")                           \
    F(U64, layers_ready, 0, 4096, "by layers: number of layers that are computed")                \
    F(U64S, layered_blocks, 0, SL_BATCH_MAX,                                                      \
      "by layers: replaces device_blocks, so that a coordinator without layers stores nothing")   \
    L(events, event, 64,                                                                          \
      "one per rank: its blocks are read after the event; none: the engine has waited")           \
    F(U64S, ordered_blocks, 0, SL_BATCH_MAX,                                                      \
      "with events: replaces the two above, so that a coordinator without events stores nothing") \
    SL_FIELDS_HASHED(F)                                                                           \
    F(BOOL, direct, 0, 1,                                                                         \
      "for a hand-over without a ticket: use the one that decode has offered, if any")            \
    SL_FIELDS_SAID(F)                                                                             \
    F(BIN, before_hash, 0, 64,                                                                    \
      "with hashes: key of the block before the first one; empty: none, or not known")            \
    SL_FIELDS_SESSION(F) SL_FIELDS_ORIGIN(F)
#define SL_BODY_STORE_REPLY(F, L)                                                          \
    F(U64, block_count, 0, UINT32_MAX, "blocks requested")                                 \
    F(BIN, stored, 0, SL_BATCH_MAX, "bitmap, bit i & 7 of byte i >> 3: stored by this op") \
    F(BIN, existed, 0, SL_BATCH_MAX, "bitmap: already existed")                            \
    F(BOOL, fenced, 0, 1, "the device blocks may be reused")                               \
    L(receipt, receipt, 4, "for decode: one, if a hand-over is committed")
#define SL_BODY_LOAD(F, L)                                                                       \
    SL_FIELDS_PROMPT(F, "on the device already")                                                 \
    F(U64S, device_blocks, 0, SL_BATCH_MAX, "device block for every block from first_block on")  \
    F(U64, handover_id, 0, UINT64_MAX,                                                           \
      "0: none; else waits until prefill has committed, and loads all or fails")                 \
    L(receipt, receipt, 4, "one, if it has arrived")                                             \
    F(BOOL, direct, 0, 1, "makes a ticket under which prefill lends its blocks")                 \
    F(U64S, layer_ends, 0, 32768, "by layers, as in STORE")                                      \
    F(U64, layers_in, 0, 4096, "by layers: number of layers already reported")                   \
    F(U64, layer_blocks, 0, SL_BATCH_MAX, "blocks of each of these layers")                      \
    L(events, event, 64,                                                                         \
      "one per rank: its blocks are written after the event; none: the engine has waited")       \
    F(U64S, ordered_blocks, 0, SL_BATCH_MAX,                                                     \
      "with events: replaces device_blocks, so that a coordinator without events loads nothing") \
    SL_FIELDS_HASHED(F)                                                                          \
    F(TEXT, prefill_node, 0, 31, "for a hand-over: node that is asked for it; empty: none")      \
    SL_FIELDS_SAID(F)                                                                            \
    F(U64, prefill_rate, 0, SL_PREFILL_MAX,                                                      \
      "tokens that the engine computes per second: slower blocks are skipped; 0: none are")      \
    F(U64, prefill_doubles, 0, SL_PREFILL_MAX,                                                   \
      "with it: position of the token that takes twice as long as the first; 0: none does")      \
    SL_FIELDS_SESSION(F) SL_FIELDS_ORIGIN(F)
#define SL_BODY_LOAD_REPLY(F, L)                                    \
    F(U64, block_count, 0, UINT32_MAX,                              \
      "blocks loaded: the longest prefix all ranks and pools have") \
    F(U64, from_memory, 0, UINT32_MAX, "of these")                  \
    F(U64, from_disk, 0, UINT32_MAX, "of these")                    \
    F(U64, from_remote, 0, UINT32_MAX, "of these")                  \
    F(U64, bytes, 0, UINT64_MAX, "copied to the devices")           \
    F(BOOL, fenced, 0, 1, "the device blocks may be reused")        \
    F(U64, not_awaited, 0, UINT32_MAX,                              \
      "blocks after these that are on this node, but faster to compute than to read")
/* The outcome of an op, block by block; for running ops and the last that ended. */
#define SL_BODY_OP_TRACE(F, L)                                                                   \
    F(TEXT, id, 1, 127, "trace id of the op in hex digits, or the engine's name of its request") \
    F(U64, skip, 0, UINT32_MAX, "number of newer matching ops to skip")
#define SL_BODY_OP_TRACE_REPLY(F, L)                                          \
    F(U64, op, 1, UINT64_MAX, "op id")                                        \
    F(U64, trace, 0, UINT64_MAX, "trace id")                                  \
    F(U64, engine_id, 0, UINT64_MAX, "engine")                                \
    F(BOOL, store, 0, 1, "false: a load")                                     \
    F(BOOL, running, 0, 1, "it has not ended")                                \
    F(U64, result, 0, 255, "its code")                                        \
    F(TEXT, reason, 0, 255, "why it failed, or what it waits for")            \
    F(TEXT, requester, 0, 63, "process that asked for it")                    \
    SL_FIELDS_ORIGIN(F)                                                       \
    F(TEXT, model, 0, 32, "model identity; empty: the engine was not known")  \
    F(U64, first_block, 0, UINT32_MAX, "of its prompt; runs begin there")     \
    F(U64, ago_ns, 0, UINT64_MAX, "since it began")                           \
    F(U64, took_ns, 0, UINT64_MAX, "until it ended, or until now")            \
    L(runs, run, 4096, "outcome of its blocks, in order")                     \
    F(U64, keys_first, 0, UINT32_MAX, "number of the block of the first key") \
    F(TEXTS, keys, 0, 64, "MODEL/BLOCK of the first missing blocks, consecutive")
/* Sent by any client that knows the session: an engine or an agent framework. */
#define SL_BODY_SESSION_PAUSE(F, L)                                                             \
    F(U64, session_id, 1, UINT64_MAX, "of its ops: hash of the session's name, by sl_key_hash") \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX,                                                         \
      "expected time until its next request; 0: it is about to arrive")                         \
    F(BOOL, unknown, 0, 1, "the time is not known: earlier reports no longer count")
/* Sent by a client that uses values by their keys and knows the session: the values of one turn. */
#define SL_BODY_SESSION_TURN(F, L)                                                         \
    F(U64, session_id, 1, UINT64_MAX, "hash of the session's name, by sl_key_hash")        \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX, "expected time until its next turn; 0: not known") \
    F(BOOL, ends, 0, 1, "no other turn is expected")                                       \
    F(BOOL, asked, 0, 1,                                                                   \
      "the keys were read; false: stored. The session keeps its keys before the first of " \
      "these; if it does not have that one, stored keys are appended")                     \
    F(U64, lane, 0, SL_SESSION_LANES - 1u, "the rank, if ranks have values of their own")  \
    F(TEXTS, keys, 1, SL_BATCH_MAX, "of the values, in the order of the chain")
/* decode's engine: first tokens have arrived */
#define SL_BODY_ARRIVED(F, L)      L(items, receipt, 1024, "one per hand-over")
#define SL_BODY_TICKET(F, L)       F(U64, handover_id, 1, UINT64_MAX, "hand-over with a direct load")
#define SL_BODY_TICKET_REPLY(F, L) L(ticket, ticket, 4, "one: for prefill")
#define SL_BODY_HANDOVER_END(F, L) \
    F(U64S, handover_ids, 1, 1024, "hand-overs that decode has loaded or given up")
/* Notifications between the nodes of a hand-over: coordinator -> its transporter -> the other
 * node's transporter -> its coordinator. State 1 is repeated until it is answered, 4 and 5 are sent
 * once. */
#define SL_BODY_HANDOVER_NOTIFY(F, L)                                                            \
    F(TEXT, node, 1, 31, "receiver; from a transporter to its coordinator: sender")              \
    F(U64, handover_id, 1, UINT64_MAX, "hand-over")                                              \
    F(U64, state, 1, 5,                                                                          \
      "1 decode waits for it, 2 it is committed, 3 it failed, 4 decode gave up, 5 decode needs " \
      "the held blocks no more")                                                                 \
    L(receipt, receipt, 4, "committed, done: one; decode waits: one, if decode has it")          \
    L(ticket, ticket, 4, "decode waits, direct: one, if it exists")                              \
    F(TEXT, reason, 0, 159, "failed: reason, for people")
#define SL_BODY_OP(F, L) F(U64, target_op, 1, UINT64_MAX, "id of the op")
#define SL_BODY_OP_REPLY(F, L) \
    F(BOOL, fenced, 0, 1, "nothing accesses the op's device blocks any more")
/* For ops by layers. Layers that are ready are reported once, without waiting; a repeated STORE
 * includes them. With one process per rank, each reports its own rank, with layers 0, which an
 * older coordinator refuses. */
#define SL_BODY_LAYERS(F, L)                                                                    \
    F(U64, target_op, 1, UINT64_MAX, "id of the op")                                            \
    F(U64, layers, 0, 4096, "number of layers from the first on, of all ranks; 0: rank_layers") \
    F(U64, rank_layers, 0, 4096,                                                                \
      "number of layers from the first one on, of rank; the sender may be another client")      \
    F(U64, rank, 0, 63, "with rank_layers: rank that has them")                                 \
    F(U64, member, 0, UINT64_MAX, "with rank_layers: engine id of the rank's registration")     \
    F(BOOL, wait, 0, 1, "waits until those of a LOAD are loaded; false: those of a STORE are ready")
#define SL_BODY_LAYERS_REPLY(F, L)                     \
    F(U64, layers, 0, 4096, "number of layers loaded") \
    F(U64, block_count, 0, UINT32_MAX,                 \
      "blocks of each: the number that the load ends with, unless it fails")

#define SL_BODY_KEYS(F, L)                                                 \
    F(TEXT, format, 1, 31, "as in sluicectl keys --format")                \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                    \
    F(BIN, tokens, 0, SL_TOKENS_BYTES_MAX, "token ids, u32 little-endian") \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block]; empty: none")     \
    F(TEXT, seed, 0, 255, "seed")                                          \
    F(TEXT, parent, 0, 255, "hex key of the previous block; empty: none")  \
    F(BOOL, partial, 0, 1, "an incomplete last block gets a key if the format has one")
#define SL_BODY_KEYS_REPLY(F, L) F(TEXTS, keys, 0, SL_BATCH_MAX, "one for each block")

#define SL_BODY_COPY(F, L)                                                                    \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                                \
    F(U64, rank, 0, 63, "rank")                                                               \
    F(BOOL, out, 0, 1, "true: device to arena, false: arena to device")                       \
    L(items, piece, SL_BATCH_MAX, "parts")                                                    \
    F(BOOL, chunks, 0, 1, "out: returns the hashes of the parts' chunks instead of digests")  \
    F(BIN, event, 0, 64,                                                                      \
      "of cuIpcGetEventHandle: no device block is accessed before it completes; empty: none") \
    F(BOOL, look, 0, 1, "out: copies nothing; returns digests of the blocks' contents")
#define SL_BODY_COPY_REPLY(F, L)                                                            \
    F(BIN, done, 0, SL_BATCH_MAX, "bitmap over items")                                      \
    F(BIN, digests, 0, 1048576,                                                             \
      "out: 16 bytes an item: low, high, u64 little-endian; of the bytes that were copied") \
    F(BIN, chunks, 0, 8388608,                                                              \
      "out, if requested: u64 little-endian of every chunk of a part that is now complete, item by item")

#define SL_BODY_DISK_WRITE(F, L) L(items, spill, SL_BATCH_MAX, "values to make durable")
#define SL_BODY_DISK_WRITE_REPLY(F, L)                                                     \
    L(items, spilled, SL_BATCH_MAX, "one for each value")                                  \
    F(U64, budget_left, 0, INT64_MAX, "with disk_write_budget: bytes that may be written") \
    F(U64, budget_debt, 0, INT64_MAX, "likewise: bytes written beyond it, to be compensated")
#define SL_BODY_DISK_READ(F, L)                                              \
    L(items, fill, SL_BATCH_MAX, "values to read; digests are verified")     \
    F(BOOL, ahead, 0, 1, "no request waits for them: read after all others") \
    F(U64, raise, 0, UINT64_MAX,                                             \
      "0: none; else the generation of a target for which a request now waits; items is empty")
#define SL_BODY_DISK_FORGET(F, L) \
    L(items, forget, SL_BATCH_MAX, "removed permanently: must not reappear after a restart")
#define SL_BODY_DISK_FOUND(F, L)                                                               \
    F(BOOL, first, 0, 1, "a scan begins: values not found by its end are not on disk")         \
    F(BOOL, last, 0, 1, "the scan is complete, the tierer accepts work")                       \
    L(items, found, SL_BATCH_MAX, "values on disk")                                            \
    F(BIN, store, 0, 16, "with first: name of the disk; empty: it has none")                   \
    F(BIN, members, 0, 792,                                                                    \
      "with first: 24 bytes per disk, name and epoch: itself (epoch 0: no list counts), then " \
      "those that missed nothing; empty: it keeps no list")                                    \
    F(BOOL, blank, 0, 1, "with first: no value is on the disk")                                \
    F(U64, budget_left, 0, INT64_MAX,                                                          \
      "with first, with disk_write_budget: bytes that may be written")                         \
    F(U64, budget_debt, 0, INT64_MAX, "likewise: bytes written beyond it, to be compensated")  \
    F(U64, boot_generation, 0, UINT64_MAX,                                                     \
      "of the registrar for which it is meant; 0: from an older tierer")                       \
    F(U64, known_fence, 0, UINT64_MAX,                                                         \
      "1 + seq of the newest FENCE of everything that had arrived when it was made; 0: likewise")
/* registrar -> tierer: written to the disk before later requests are acknowledged */
#define SL_BODY_DISK_MEMBERS(F, L)                                                      \
    F(U64, epoch, 1, UINT64_MAX, "random number of this list")                          \
    F(BIN, members, 0, 768, "disks that missed nothing: 24 bytes each, name and epoch") \
    F(BOOL, empty, 0, 1, "this disk missed something: it drops its values and changes its name")
#define SL_BODY_DISK_RECLAIM(F, L)                                         \
    F(U64, segment, 0, UINT32_MAX, "the oldest log file, to be reclaimed") \
    F(BOOL, gone, 0, 1, "the file was deleted: forget the places in it")
/* Between transporters of two nodes. All other messages from a peer are refused. */
#define SL_BODY_PEER_HELLO(F, L)                                                    \
    F(TEXT, node, 1, 31, "the sender, by the name of its key at the receiver")      \
    F(U64, incarnation, 1, UINT64_MAX, "of the sender: increases with every start") \
    F(TEXT, fabric, 0, 15, "fabric that carries its bytes")                         \
    F(BIN, address, 0, 65536, "of its fabric, for the receiver")
#define SL_BODY_PEER_HELLO_REPLY(F, L) \
    SL_BODY_PEER_HELLO(F, L)           \
    L(windows, window, 64, "arenas that the receiver may read")
/* client -> transporter, and between transporters: objects of other nodes by their keys */
#define SL_BODY_SEEK(F, L)                                                   \
    F(TEXTS, keys, 0, 4096, "object keys")                                   \
    F(BOOL, lease, 0, 1, "lease the values found, if the holder has leases") \
    F(BOOL, remove, 0, 1, "remove them, if the holder lets its peers do so") \
    F(BOOL, respect_leases, 0, 1, "with remove: leased values stay")
#define SL_BODY_SEEK_REPLY(F, L)             \
    L(items, seen, 4096, "one for each key") \
    F(TEXTS, nodes, 0, 64, "nodes that have them; empty between nodes")
#define SL_BODY_PEER_PIN(F, L)                                                               \
    F(U64, ttl_ns, 1, UINT64_MAX, "the pins end after this time; the holder may shorten it") \
    F(U64, bytes_max, 1, UINT64_MAX,                                                         \
      "values beyond it are SL_ERR_LIMIT; the first value is always pinned")                 \
    F(BOOL, chain, 0, 1, "keys after a missing one are not wanted")                          \
    L(items, sought, 512, "keys")
#define SL_BODY_PEER_PIN_REPLY(F, L)                                      \
    F(U64, pin_id, 0, UINT64_MAX, "names the pins; 0: nothing is pinned") \
    F(U64, ttl_ns, 0, UINT64_MAX, "they end after this time")             \
    L(items, place, 512, "one for each key")
#define SL_BODY_PEER_UNPIN(F, L) F(U64S, pin_ids, 1, 1024, "of the sender's own")
#define SL_BODY_NODES_REPLY(F, L)                                     \
    F(TEXT, name, 0, 31, "this node")                                 \
    F(TEXT, listen, 0, 128, "where it accepts peers; empty: nowhere") \
    F(TEXT, fabric, 0, 191, "fabric that carries its bytes")          \
    L(nodes, node, 64, "peers")

/* Direct hand-over of blocks. Prefill's coordinator -> its transporter. Pieces of a part are named
 * in order, without gaps. */
#define SL_BODY_LEND(F, L)                                                                   \
    F(BIN, ticket, 1, 128, "the ticket's node may read")                                     \
    F(U64, number, 1, UINT32_MAX, "number of this message in its loan: 1, 2, ...")           \
    F(BOOL, last, 0, 1, "the last one: all parts are complete; answered when the loan ends") \
    L(pieces, arrived, 512, "ready to be read")                                              \
    L(slots, slot, 512, "one for each: where its part is; item counts from 0")
/* prefill's transporter -> decode's. op_id: the sender's number of the loan. */
#define SL_BODY_PEER_LEND(F, L)                                                              \
    F(BIN, ticket, 1, 128, "of a BRING of the receiver")                                     \
    F(U64, number, 0, UINT32_MAX, "as in LEND; the same when it is repeated")                \
    F(BOOL, last, 0, 1, "nothing follows")                                                   \
    F(U64, code, 0, 255, "sl_err; not SL_OK: the loan has ended, nothing of it may be read") \
    F(TEXT, text, 0, 240, "with code: reason, for people")                                   \
    L(doors, door, 512, "keys of parts that no earlier message named")                       \
    L(pieces, arrived, 512, "ready to be read")
#define SL_BODY_PEER_LEND_REPLY(F, L) F(U64, number, 0, UINT32_MAX, "as in the request")
/* decode's transporter -> sender of a BRING with a ticket */
#define SL_BODY_LANDED(F, L)                                                                    \
    F(U64, handover, 1, UINT64_MAX, "number of the ticket")                                     \
    F(U64, state, 0, 2, "0 the ticket may be handed out, 1 pieces arrived, 2 all have arrived") \
    F(TEXT, from, 0, 31, "node that lends")                                                     \
    L(pieces, arrived, 512, "the parts are in all their pool slots and their digests match")
/* never on the wire: completions inside a process */
#define SL_BODY_LOCAL_IO(F, L)                      \
    F(U64, cookie, 0, UINT64_MAX, "of the request") \
    F(U64, bytes, 0, UINT64_MAX, "transferred")     \
    F(U64, os_code, 0, 65535, "errno; 0: success")
#define SL_BODY_LOCAL_DIED(F, L)                  \
    F(U64, cookie, 0, UINT64_MAX, "of the watch") \
    F(U64, pid, 0, UINT32_MAX, "process")         \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot")
#define SL_BODY_LOCAL_JOB(F, L) F(U64, cookie, 0, UINT64_MAX, "of the job; result is the code")

/* X(NAME, body, number, TABLE, help) makes SL_MSG_NAME and struct sl_body_BODY. P is a request and
 * its reply, NAME_REPLY, which has the next number: P(X, NAME, body, number, its table, help, the
 * reply's table, help). */
#define SL_MSG_ROWS(P, X)                                                                          \
    X(PING, ping, 2, SL_BODY_EMPTY, "asks whether the actor responds")                             \
    X(PONG, pong, 3, SL_BODY_PONG, "it responds")                                                  \
    P(X, HELLO, hello, 10, HELLO, "a process announces itself", HELLO_REPLY, "known")              \
    P(X, RESERVE, reserve, 12, RESERVE, "reserves space for objects", RESERVE_REPLY, "grants")     \
    P(X, COMMIT, commit, 14, COMMIT, "makes values visible", COMMIT_REPLY, "codes, more extents")  \
    P(X, ABORT, abort, 16, ABORT, "releases reservations", CODES, "done")                          \
    P(X, REMOVE, remove, 18, REMOVE, "removes objects permanently", CODES, "done")                 \
    P(X, FLUSH, flush, 24, EMPTY, "answered when all committed values are durable", EMPTY,         \
      "durable")                                                                                   \
    P(X, EXPLAIN, explain, 28, EXPLAIN, "why keys are misses", EXPLAIN_REPLY,                      \
      "the reason of each")                                                                        \
    P(X, ENGINE_REGISTER, engine_register, 30, ENGINE, "adds an engine and pools", ENGINE_ID,      \
      "registered")                                                                                \
    P(X, ENGINE_GET, engine_get, 32, ENGINE_ID, "asks for a registration", ENGINE, "registration") \
    P(X, ENGINE_END, engine_end, 34, ENGINE_ID, "ends a registration", EMPTY, "ended")             \
    P(X, FENCE, fence, 36, FENCE, "stop writing on behalf of claims or of an op", EMPTY,           \
      "nothing writes or reads there any more")                                                    \
    P(X, HOLD, hold, 38, HOLD, "ends a hold, or asks whether it has all its blocks", EMPTY,        \
      "ended; it has all")                                                                         \
    P(X, STORE, store, 40, STORE, "store blocks from the device", STORE_REPLY, "stored")           \
    P(X, LOAD, load, 42, LOAD, "load the longest prefix to the device", LOAD_REPLY, "loaded")      \
    P(X, CANCEL, cancel, 44, OP, "end an op early", OP_REPLY, "ended, or not known")               \
    P(X, OP_FENCED, op_fenced, 46, OP, "answered when the op's device blocks are free", OP_REPLY,  \
      "free")                                                                                      \
    P(X, ARRIVED, arrived, 48, ARRIVED, "hand-overs that loads wait for are committed", CODES,     \
      "SL_ERR_NOT_FOUND: that load has ended")                                                     \
    P(X, KEYS, keys, 50, KEYS, "keys of a token sequence", KEYS_REPLY, "keys")                     \
    P(X, HANDOVER_END, handover_end, 52, HANDOVER_END, "ends hand-overs at prefill's node", CODES, \
      "done, or not known")                                                                        \
    P(X, TICKET, ticket, 54, TICKET, "decode's engine asks for its ticket", TICKET_REPLY,          \
      "SL_ERR_BUSY: there is none yet")                                                            \
    P(X, COPY, copy, 60, COPY, "copies parts between device and arena", COPY_REPLY, "copied")      \
    P(X, LAYERS, layers, 62, LAYERS, "layers of a STORE are computed; waits for those of a LOAD",  \
      LAYERS_REPLY, "recorded; they are loaded, or the op's code")                                 \
    P(X, DISK_WRITE, disk_write, 70, DISK_WRITE, "writes values", DISK_WRITE_REPLY, "durable")     \
    P(X, DISK_READ, disk_read, 72, DISK_READ, "fills extents", CODES, "read and verified")         \
    P(X, DISK_FORGET, disk_forget, 74, DISK_FORGET, "writes tombstones", CODES, "durable")         \
    P(X, DISK_FOUND, disk_found, 76, DISK_FOUND, "tierer to registrar: values at start", CODES,    \
      "SL_OK known, SL_ERR_NOT_FOUND unwanted")                                                    \
    P(X, DISK_RECLAIM, disk_reclaim, 78, DISK_RECLAIM, "tierer to registrar: reclaims a log file", \
      EMPTY, "it may be deleted; its places are forgotten")                                        \
    P(X, NODES, nodes, 84, EMPTY, "the transporter's peers", NODES_REPLY, "peers")                 \
    P(X, DISK_MEMBERS, disk_members, 86, DISK_MEMBERS, "which disks have missed nothing", EMPTY,   \
      "durable")                                                                                   \
    P(X, PEER_HELLO, peer_hello, 90, PEER_HELLO, "announces a node", PEER_HELLO_REPLY,             \
      "arenas that it may read")                                                                   \
    P(X, PEER_PIN, peer_pin, 92, PEER_PIN, "pins values for the sender to read", PEER_PIN_REPLY,   \
      "where they are")                                                                            \
    P(X, PEER_UNPIN, peer_unpin, 94, PEER_UNPIN, "ends pins after reading", EMPTY, "done")         \
    P(X, LEND, lend, 114, LEND, "lets another node read blocks of pools", EMPTY,                   \
      "announced; of the last: all of it was read")                                                \
    P(X, PEER_LEND, peer_lend, 116, PEER_LEND, "announces blocks to read", PEER_LEND_REPLY,        \
      "read, being read, ...")                                                                     \
    P(X, LANDED, landed, 118, LANDED, "pieces of a hand-over arrived", EMPTY,                      \
      "accepted: prefill receives the code")                                                       \
    P(X, HANDOVER_NOTIFY, handover_notify, 120, HANDOVER_NOTIFY, "notifies the other node", EMPTY, \
      "sent, or accepted")                                                                         \
    P(X, POOL_TAKE, pool_take, 130, POOL_TAKE, "becomes a pool's owner, or has it allocated",      \
      POOL_STATE, "SL_ERR_EXISTS: it is ready; SL_ERR_BUSY: another owner allocates it")           \
    P(X, POOL_AWAIT, pool_await, 132, POOL_AWAIT, "answered when the pool is ready, or has ended", \
      POOL_STATE, "SL_ERR_PEER_DIED: its owner died while it was waited for")                      \
    P(X, POOL_READY, pool_ready, 134, POOL_READY, "its owner announces that it is ready", EMPTY,   \
      "others may map it")                                                                         \
    P(X, POOL_MAPPED, pool_mapped, 136, POOL_MAPPED, "the sender has mapped it", EMPTY,            \
      "SL_ERR_STALE: it has ended, unmap it")                                                      \
    P(X, POOL_RELEASE, pool_release, 138, POOL_RELEASE, "the sender has unmapped it", EMPTY,       \
      "noted")                                                                                     \
    P(X, POOL_REVOKE, pool_revoke, 140, POOL_EPOCH, "asks all processes to unmap it", EMPTY,       \
      "no process maps it any more")                                                               \
    P(X, POOLS, pools, 142, EMPTY, "the table of pools", POOLS_REPLY, "all of them")               \
    P(X, POOL_MAKE, pool_make, 144, POOL_MAKE, "allocates memory for others", POOL_MAKE_REPLY,     \
      "allocated; the same if repeated")                                                           \
    P(X, POOL_DROP, pool_drop, 146, POOL_EPOCH, "unmaps it, frees memory made here", EMPTY,        \
      "it is not mapped here, and will not be")                                                    \
    P(X, CONTRIBUTE, contribute, 150, CONTRIBUTE, "adds memory to the node", EMPTY, "it counts")   \
    P(X, WITHDRAW, withdraw, 152, WITHDRAW, "ends a contribution, removing its values", EMPTY,     \
      "gone")                                                                                      \
    P(X, CONTRIBUTIONS, contributions, 154, EMPTY, "lists contributions", CONTRIBUTIONS_REPLY,     \
      "all of them")                                                                               \
    P(X, ENGINE_OVER, engine_over, 156, ENGINE_ID,                                                 \
      "to swappers, coordinator, transporters: its registration ended, its process lives", EMPTY,  \
      "its memory is no longer used here")                                                         \
    P(X, DAMAGED, damaged, 158, DAMAGED, "values in memory do not match their digests", CODES,     \
      "SL_ERR_NOT_FOUND: already removed")                                                         \
    P(X, SEEK, seek, 160, SEEK,                                                                    \
      "finds or removes what other nodes have; sent to a peer: what it has itself", SEEK_REPLY,    \
      "this")                                                                                      \
    P(X, ENGINES, engines, 164, EMPTY, "lists the registered engines", ENGINES_REPLY, "these")     \
    P(X, ENGINE_ADDED, engine_added, 166, ENGINE_ID,                                               \
      "registrar to transporter: its memory may be registered", EMPTY, "noted")                    \
    P(X, POOL_EXPORT, pool_export, 172, POOL_EXPORT,                                               \
      "makes a dmabuf of device memory; SL_ERR_BUSY: ask again, it is being mapped",               \
      POOL_EXPORT_REPLY, "made; SL_ERR_UNSUPPORTED: such memory has none, with the reason")        \
    P(X, BRING, bring, 174, BRING, "reads values that are not in memory", BRING_REPLY,             \
      "SL_OK: read; SL_ERR_EXISTS: it was here, perhaps on disk; SL_ERR_NO_SPACE: no room")        \
    P(X, OP_TRACE, op_trace, 198, OP_TRACE, "outcome of an op's blocks", OP_TRACE_REPLY,           \
      "SL_ERR_NOT_FOUND: not among the last ones")                                                 \
    P(X, SESSION_TURN, session_turn, 192, SESSION_TURN, "values that a session used", EMPTY,       \
      "recorded")                                                                                  \
    P(X, SESSION_PAUSE, session_pause, 190, SESSION_PAUSE, "when a session continues", EMPTY,      \
      "SL_ERR_NOT_FOUND: no op named it; SL_ERR_UNSUPPORTED: no sessions here")                    \
    X(LOCAL_IO, local_io, 1000, SL_BODY_LOCAL_IO, "a disk request ended")                          \
    X(LOCAL_DIED, local_died, 1002, SL_BODY_LOCAL_DIED, "a watched process is gone")               \
    X(LOCAL_JOB, local_job, 1004, SL_BODY_LOCAL_JOB, "a job ended")
#define SL_MSG_PAIR(X, NAME, body, number, TABLE, help, REPLY_TABLE, reply_help) \
    X(NAME, body, number, SL_BODY_##TABLE, help)                                 \
    X(NAME##_REPLY, body##_reply, (number) + 1, SL_BODY_##REPLY_TABLE, reply_help)
#define SL_MSG_TABLE(X) SL_MSG_ROWS(SL_MSG_PAIR, X)

#endif
