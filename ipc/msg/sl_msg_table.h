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

/* A release that appends a field has another number than the one before: what is missing is refused
 * in messages of the own version. 7: the first of 0.3. 0.2 spoke 5 and takes
 * 6: neither understands the other. */
#define SL_WIRE_VERSION     7
#define SL_WIRE_VERSION_MIN 6
#define SL_BATCH_MAX        65536
#define SL_TEAM_FIRST       (UINT64_C(1) << 63) /* numbers of teams begin here; of engines below */
#define SL_EVENT_BYTES      64                  /* of an IPC handle of an event */
#define SL_TOKENS_BYTES_MAX (16u << 20)         /* 4 Mi tokens of 4 bytes */
#define SL_PREFILL_MAX      (UINT64_C(1) << 40) /* tokens, tokens a second */
#define SL_SESSION_LANES    64u

/* Fields of several tables. */
#define SL_FIELDS_DIGEST(F, what)           \
    F(U64, digest_low, 0, UINT64_MAX, what) \
    F(U64, digest_high, 0, UINT64_MAX, "its high half")
#define SL_FIELDS_OBJECT(F)                                 \
    F(TEXT, key, 1, 1024, "object key")                     \
    F(TEXT, group_key, 0, 1024, "MODEL/BLOCK, empty: none") \
    F(U64, part_index, 0, 511, "which part of the group")   \
    F(U64, part_count, 0, 512, "parts of the group, 0: none")
#define SL_FIELDS_HANDLE(F, kind_min)                       \
    F(U64, handle_kind, kind_min, 7, "enum sl_memory_kind") \
    F(U64, pid, 0, UINT32_MAX, "process that holds fd")     \
    F(U64, fd, 0, UINT32_MAX, "descriptor in that process") \
    F(BIN, handle, 0, 64, "device IPC handle")
#define SL_FIELDS_POOL(F)                                                \
    F(TEXT, name, 1, 63, "deployment: what one model replica is called") \
    F(U64, rank, 0, 63, "rank")                                          \
    F(TEXT, pool, 1, 31, "pool name: [a-z0-9_-]")

#define SL_ITEM_WANT(F, L)                                                       \
    F(TEXT, key, 1, 1024, "object key")                                          \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "size of the value")             \
    F(U64, group, 0, SL_BATCH_MAX, "0: none, else 1 + index into groups")        \
    F(U64, part_index, 0, 511, "which part of the group")                        \
    F(TEXT, writer, 0, 31, "actor that will write the bytes; empty: the sender") \
    F(TEXT, bundle, 0, 255, "values that are leased and evicted together; empty: none")
#define SL_ITEM_GROUP(F, L)                                                                        \
    F(TEXT, key, 1, 1024, "MODEL/BLOCK")                                                           \
    F(U64, part_count, 1, 512, "parts that make the block visible")                                \
    F(U64, transient_ns, 0, UINT64_MAX, "time to live after the commit; 0: no limit")              \
    F(U64, parent_hash, 0, UINT64_MAX, "sl_key_hash of the block before it in its chain; 0: none") \
    F(U64, stored_count, 0, UINT32_MAX, "blocks that its request stores; 0: not known")            \
    F(BOOL, cut, 0, 1, "an incomplete last block")                                                 \
    F(U64, hint, 0, 2, "of its session: 0 nothing is known, 1 it ends, 2 it goes on")              \
    F(U64, priority, 0, 3, "0 nothing is said, 1 low, 2 normal, 3 high")                           \
    F(U64, keep_ns, 0, SL_KEEP_NS_MAX,                                                             \
      "so long it is evicted after others, if that is worth it; 0: not")
#define SL_ITEM_GRANT(F, L)                                                                 \
    F(U64, code, 0, 255, "SL_OK granted, SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_NO_SPACE, ...") \
    F(U64, ref, 0, UINT32_MAX, "record of the claim")                                       \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent")                           \
    F(U64, arena, 0, 65535, "arena id")                                                     \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                       \
    F(U64, busy_ns, 0, UINT64_MAX, "with SL_ERR_BUSY: the other reservation ends within")
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
    F(U64, part_count, 0, 64, "parts of a block: slices of heads, of layers; 0: one a rank")
#define SL_ITEM_REGION(F, L)                                                                     \
    F(U64, rank, 0, 63, "rank")                                                                  \
    F(U64, pool, 0, 7, "index into pools")                                                       \
    F(U64, layer, 0, 4095,                                                                       \
      "position in the part: parts are the layers' pieces one after the other")                  \
    SL_FIELDS_HANDLE(F, 0)                                                                       \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the layer starts in the handle's memory")         \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the layer's tensor")                           \
    F(U64, block_stride_bytes, 1, UINT64_MAX, "from block i to block i + 1")                     \
    F(U64, piece_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of one block in this layer; <= stride")    \
    F(U64, block_count, 1, UINT32_MAX, "blocks; (count - 1) * stride + piece <= length")         \
    F(U64, pool_epoch, 0, UINT64_MAX, "of the memory in the table of pools; 0: it is not there") \
    F(BIN, gpu, 0, 16, "UUID of the GPU that it lies on; empty: none, or not told")              \
    F(U64, part, 0, 63, "of a pool with part_count: which part this is a layer of")              \
    F(U64, fragment_bytes, 0, SL_VALUE_BYTES_MAX,                                                \
      "0: a piece is one run; else it is runs of so many bytes, piece_bytes in all")             \
    F(U64, fragment_stride_bytes, 0, UINT64_MAX, "from one of these runs to the next")           \
    F(U64, start_time, 0, UINT64_MAX, "with pid, who that is; 0: not told")                      \
    F(U64, member, 0, UINT64_MAX,                                                                \
      "of a team that was asked for: engine id of the registration that this is of")
#define SL_ITEM_PIECE(F, L)                                                                \
    F(U64, pool, 0, 7, "index into the engine's pools")                                    \
    F(U64, device_block, 0, UINT32_MAX, "block id on the device")                          \
    F(U64, arena, 0, 65535, "arena id")                                                    \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                      \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the part")                       \
    F(U64, ref, 0, UINT32_MAX, "record: out checks that the claim still stands; look: 0")  \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent; look: 0")                 \
    F(U64, first_layer, 0, 4095, "layers [first, end) of the part alone; 0, 0: all of it") \
    F(U64, layer_end, 0, 4096, "with first_layer")                                         \
    F(U64, part, 0, 63, "of a pool with part_count: which part")                           \
    SL_FIELDS_DIGEST(F, "in: of the whole part, to check what arrived; 0, 0: not told")
#define SL_ITEM_SPILL(F, L)                                           \
    SL_FIELDS_OBJECT(F)                                               \
    F(U64, arena, 0, 65535, "arena id")                               \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value") \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")     \
    SL_FIELDS_DIGEST(F, "digest of the value")
#define SL_ITEM_SPILLED(F, L)                        \
    F(U64, code, 0, 255, "SL_OK: durable")           \
    F(U64, generation, 1, UINT64_MAX, "of the item") \
    F(U64, segment, 0, UINT32_MAX, "segment number") \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment")
#define SL_ITEM_FILL(F, L)                                                   \
    F(TEXT, key, 1, 1024, "object key, checked against the record on disk")  \
    F(U64, segment, 0, UINT32_MAX, "segment number")                         \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment")  \
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
    F(U64, segment, 0, UINT32_MAX, "segment number")                  \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment")
#define SL_ITEM_FORGET(F, L)                                                \
    F(TEXT, key, 1, 1024, "object key")                                     \
    F(U64, segment, 0, UINT32_MAX, "segment number; 0: wherever it is")     \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value")
#define SL_ITEM_CONTRIBUTION(F, L)                                    \
    F(TEXT, name, 1, 255, "of the contribution")                      \
    F(U64, number, 0, 63, "of the contribution, in records")          \
    F(U64, length_bytes, 0, UINT64_MAX, "what it adds")               \
    F(U64, used_bytes, 0, UINT64_MAX, "what values are charged")      \
    F(U64, value_count, 0, UINT64_MAX, "values that are charged")     \
    F(TEXT, process, 0, 31, "whose it is; empty: nobody's, it lasts") \
    F(U64, pid, 0, UINT32_MAX, "of that process")

#define SL_ITEM_SEEN(F, L)                                                                \
    F(U64, code, 0, 255, "SL_OK there, or removed; SL_ERR_NOT_FOUND, SL_ERR_LEASED, ...") \
    F(U64, length_bytes, 0, SL_VALUE_BYTES_MAX, "size of the value")                      \
    F(BOOL, in_memory, 0, 1, "a copy is in memory")                                       \
    F(BOOL, on_disk, 0, 1, "a durable copy exists")                                       \
    F(U64, node, 0, 64, "0: none, else 1 + index into nodes")

#define SL_ITEM_STORY(F, L)                                                                    \
    F(U64, code, 0, 255, "SL_OK there, SL_ERR_BUSY being written, SL_ERR_NOT_FOUND not there") \
    F(U64, ago_ns, 0, UINT64_MAX, "how long ago it went; 0: not known")                        \
    F(TEXT, text, 0, 255, "where it is, or why it is not; for people")

#define SL_ITEM_FACT(F, L)                          \
    F(TEXT, name, 1, 31, "what of the model it is") \
    F(TEXT, value, 0, 255, "as it went into the identity")

#define SL_ITEM_RUN(F, L)                                                              \
    F(U64, count, 1, UINT32_MAX, "blocks that follow each other")                      \
    F(U64, fate, 0, 15, "enum sl_block_fate: where they were, or what became of them") \
    F(U64, at_ns, 0, UINT64_MAX, "loaded: when they were on the device, from the op's start")

#define SL_ITEM_SOUGHT(F, L)            \
    F(TEXT, key, 1, 1024, "object key") \
    F(BOOL, part, 0, 1, "as a part of a block; objects and parts are not taken for each other")
#define SL_ITEM_PLACE(F, L)                                                                    \
    F(U64, code, 0, 255,                                                                       \
      "SL_OK pinned, SL_ERR_NOT_FOUND, SL_ERR_LIMIT ask again, SL_ERR_CANCELLED behind a gap") \
    F(U64, arena, 0, 65535, "arena id of the holder")                                          \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                          \
    F(U64, length_bytes, 0, SL_VALUE_BYTES_MAX, "size of the value")                           \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent")                              \
    SL_FIELDS_DIGEST(F, "digest of the value")
#define SL_ITEM_WINDOW(F, L)                                 \
    F(U64, arena, 0, 65535, "arena id")                      \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of its data") \
    F(BIN, key, 1, 65536, "the fabric's key: remote READ of this arena, for this peer alone")
#define SL_ITEM_NODE(F, L)                                                             \
    F(TEXT, name, 1, 31, "name of the peer")                                           \
    F(TEXT, address, 0, 128, "where it is asked; empty: it only asks us")              \
    F(TEXT, state, 0, 15, "alive, away, broken; of no peer of ours: asks, or why not") \
    F(U64, incarnation, 0, UINT64_MAX, "of its transporter; 0: never heard of")        \
    F(U64, round_trip_ns, 0, UINT64_MAX, "of the last greeting")                       \
    F(U64, heard_ago_ns, 0, UINT64_MAX, "since it last answered or asked")             \
    F(U64, read_bytes, 0, UINT64_MAX, "read from it")                                  \
    F(U64, read_values, 0, UINT64_MAX, "read from it")                                 \
    F(U64, failures, 0, UINT64_MAX, "requests and transfers that failed")              \
    F(U64, pinned_values, 0, UINT64_MAX, "of ours that it keeps pinned now")           \
    F(TEXT, link, 0, 15, "up, connecting or down: where bytes go")                     \
    F(TEXT, source, 0, 15, "who told of it: peers (the setting) or directory; empty: itself")

/* What a rank has of one block, in its memory */
#define SL_ITEM_SPOT(F, L)                                                             \
    F(U64, engine_id, 1, UINT64_MAX, "the rank's registration; a team has one a rank") \
    F(U64, rank, 0, 63, "rank")                                                        \
    F(U64, pool, 0, 7, "index into the registration's pools")                          \
    F(U64, part, 0, 63, "of a pool with part_count: which part")                       \
    F(U64, device_block, 0, UINT32_MAX, "block id on the device")                      \
    F(U64, item, 0, SL_BATCH_MAX, "index into the list of the message that it is of")
#define SL_ITEM_ARRIVED(F, L)                                              \
    F(U64, part, 0, 4095, "part of the hand-over: spots of BRING name it") \
    F(U64, part_offset_bytes, 0, SL_VALUE_BYTES_MAX, "where in the part")  \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the piece")      \
    SL_FIELDS_DIGEST(F, "digest of the piece")
#define SL_ITEM_DOOR(F, L)                         \
    F(U64, part, 0, 4095, "part of the hand-over") \
    F(BIN, key, 1, 65536, "the fabric's key: remote READ of this part, for this peer alone")
#define SL_ITEM_TICKET(F, L)                                                               \
    F(BIN, bytes, 1, 128, "as decode's coordinator made it")                               \
    F(U64, first_block, 0, UINT32_MAX, "decode has those before it")                       \
    F(U64, block_end, 1, UINT32_MAX, "blocks of the input, an incomplete last one counts") \
    F(U64, keys_low, 0, UINT64_MAX, "digest of model and last key, low half")              \
    F(U64, keys_high, 0, UINT64_MAX, "high half")
#define SL_ITEM_EVENT(F, L)     \
    F(U64, rank, 0, 63, "rank") \
    F(BIN, handle, 64, 64, "as cuIpcGetEventHandle gives it")
#define SL_ITEM_RECEIPT(F, L)                                                              \
    F(U64, handover_id, 1, UINT64_MAX, "hand-over")                                        \
    F(U64, block_end, 1, UINT32_MAX, "blocks of the input, an incomplete last one counts") \
    F(U64, keys_low, 0, UINT64_MAX, "digest of model and last key, low half")              \
    F(U64, keys_high, 0, UINT64_MAX, "high half")                                          \
    F(TEXT, node, 0, 31, "name of prefill's node; empty: it has none")
/* One row of the table of pools: the device memory of one pool of one rank, and who has it. */
#define SL_ITEM_HOLDING(F, L)                                                             \
    SL_FIELDS_POOL(F)                                                                     \
    F(U64, state, 0, 3, "0 absent, 1 allocating, 2 ready, 3 revoking")                    \
    F(U64, epoch, 0, UINT64_MAX, "of this memory; never reused")                          \
    F(U64, length_bytes, 0, UINT64_MAX, "bytes")                                          \
    F(BOOL, sluice, 0, 1, "a swapper made it; false: its owner did")                      \
    F(TEXT, owner, 0, 31, "who makes or made it")                                         \
    F(U64, owner_pid, 0, UINT32_MAX, "its process; 0: gone, others have the memory")      \
    F(U64, mapper_count, 0, UINT32_MAX, "processes that map it, swappers included")       \
    F(TEXT, mappers, 0, 1023, "their names, for people; cut when there are many of them") \
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
    X(story, SL_ITEM_STORY)               \
    X(run, SL_ITEM_RUN)                   \
    X(fact, SL_ITEM_FACT)                 \
    X(sought, SL_ITEM_SOUGHT)             \
    X(place, SL_ITEM_PLACE)               \
    X(window, SL_ITEM_WINDOW)             \
    X(node, SL_ITEM_NODE)                 \
    X(spot, SL_ITEM_SPOT)                 \
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
#define SL_BODY_PONG(F, L)                       \
    F(TEXT, name, 1, 31, "actor")                \
    F(U64, pid, 0, UINT32_MAX, "process")        \
    F(BOOL, draining, 0, 1, "takes nothing new") \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot; 0: not told")
/* everyone -> registrar: who I am; repeated every heartbeat. A client names its pin segment. pid
 * and start_time name a process, or a client by its pin segment (struct sl_proc_id): here, and
 * wherever messages have both. */
#define SL_BODY_HELLO(F, L)                                     \
    F(TEXT, role, 1, 31, "registrar ... coordinator, client")   \
    F(TEXT, name, 1, 31, "actor or client name")                \
    F(U64, pid, 1, UINT32_MAX, "process")                       \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot") \
    F(TEXT, segment, 0, 63, "file name of its pin segment in the shm directory; empty: none")
#define SL_BODY_HELLO_REPLY(F, L)                                                       \
    F(U64, boot_generation, 0, UINT64_MAX, "first generation of this registrar's life") \
    F(U64, arena_count, 0, 65535, "arenas: files arena.0 ...")                          \
    F(U64, rank_count, 0, 64, "ranks of the node")                                      \
    F(BOOL, disk, 0, 1, "there is a disk tier")                                         \
    F(U64, pid_space, 0, UINT64_MAX, "whose process numbers the node uses: a namespace's")
/* client, coordinator -> registrar */
#define SL_BODY_RESERVE(F, L)                                                              \
    F(BOOL, wait, 0, 1, "wait for space until the budget ends (busy is answered at once)") \
    F(U64, ttl_ns, 0, UINT64_MAX, "0: setting reservation_ttl; of drafts put_release")     \
    L(items, want, SL_BATCH_MAX, "objects")                                                \
    L(groups, group, SL_BATCH_MAX, "blocks that the objects are parts of")                 \
    F(U64, hold_id, 0, UINT64_MAX,                                                         \
      "0: none; else blocks that are granted or exist are not evicted until HOLD ends it") \
    F(U64, hold_ns, 0, UINT64_MAX, "or until so much later")                               \
    F(BOOL, hard_pin, 0, 1, "the values are never evicted")                                \
    F(U64, soft_pin_ns, 0, UINT64_MAX,                                                     \
      "so long after the commit they are evicted only when nothing else is left")          \
    F(BOOL, replace, 0, 1, "a value that is there stays until the commit replaces it")     \
    F(TEXTS, contributions, 0, 16, "whose memory they go into, in order of preference")    \
    F(BOOL, draft, 0, 1, "the sender pins what it is granted whenever it writes to it")
#define SL_BODY_RESERVE_REPLY(F, L) L(items, grant, SL_BATCH_MAX, "one for each object")
#define SL_BODY_COMMIT(F, L)                                                                     \
    F(BOOL, tail_first, 0, 1,                                                                    \
      "the items are a chain, head first: the tail is the older one in LRU")                     \
    L(items, claim, SL_BATCH_MAX, "extents whose bytes are in place")                            \
    L(named, named, SL_BATCH_MAX, "of extents granted in advance: what each item is; else none") \
    F(U64, ahead_count, 0, SL_BATCH_MAX, "extents wanted in advance; fewer may be given")        \
    F(U64, ahead_bytes, 0, SL_VALUE_BYTES_MAX, "size of the values they are for")
#define SL_BODY_COMMIT_REPLY(F, L)                                                                \
    F(U64S, codes, 0, SL_BATCH_MAX,                                                               \
      "one sl_err for each item; of an extent granted in advance SL_OK and SL_ERR_STALE end the " \
      "grant, others leave it open")                                                              \
    L(ahead, grant, SL_BATCH_MAX, "extents without a key")
/* Without items: all that was granted to the op, and is not committed; its writers have not begun.
 * What of it still waits for space ends unanswered. An older registrar ends nothing by it. */
#define SL_BODY_ABORT(F, L) L(items, claim, SL_BATCH_MAX, "reservations whose writer has stopped")
/* swapper -> registrar: bytes that it has loaded; nobody shall read them again */
#define SL_BODY_DAMAGED(F, L) \
    L(items, claim, SL_BATCH_MAX, "committed values that are not what their digests say")
#define SL_BODY_CODES(F, L) F(U64S, codes, 0, SL_BATCH_MAX, "one sl_err for each item asked")
/* Bring into memory what is not there: to the registrar what is on disks, to transporter.0 what
 * other nodes have. worth, edge: hits that a block in memory brings in 10^12 seconds. */
#define SL_BODY_BRING(F, L)                                                                           \
    F(TEXTS, keys, 0, SL_BATCH_MAX, "all parts of every group, in their order, then objects")         \
    L(groups, group, SL_BATCH_MAX, "blocks that the first keys are parts of; nodes alone")            \
    F(BOOL, ahead, 0, 1, "disks alone: nobody waits; they take what costs nobody anything")           \
    F(U64, for_ns, 0, SL_KEEP_NS_MAX,                                                                 \
      "ahead: of a session that comes back within; 0: somebody wants them whatever they cost")        \
    F(U64, worth, 0, UINT64_MAX, "of such blocks: what they bring in memory")                         \
    F(BOOL, chain, 0, 1,                                                                              \
      "they are a chain of blocks, head first: none is wanted behind one that is not found")          \
    F(BOOL, sure, 0, 1, "a peer has said that it has them: whoever had not is asked again")           \
    L(spots, spot, SL_BATCH_MAX,                                                                      \
      "blocks of nodes alone: they go there and not into memory; key by key, one at least, disjoint") \
    F(U64, chain_bytes, 0, UINT64_MAX,                                                                \
      "for_ns: that they and the rest of their chain lack; 0: they")                                  \
    F(BIN, ticket, 0, 128,                                                                            \
      "a hand-over: spots of its parts, without keys; prefill names their bytes")                     \
    F(TEXT, from, 0, 31, "with ticket: the only node that may; empty: the first that shows it")
#define SL_BODY_BRING_REPLY(F, L)                                                               \
    F(U64S, codes, 0, SL_BATCH_MAX,                                                             \
      "one a key; of spots: SL_OK, it lies at all of its own; else what they hold is not said") \
    F(U64, edge, 0, UINT64_MAX, "of what would go next; 0: not known")                          \
    F(U64, full, 0, 1000, "of memory for blocks of sessions, thousandths that they take")       \
    F(U64, copied_bytes, 0, UINT64_MAX, "to spots: copied within the node beside what came")
#define SL_BODY_REMOVE(F, L)                                                          \
    F(TEXTS, keys, 0, SL_BATCH_MAX, "object keys; a block key removes all its parts") \
    F(BOOL, all, 0, 1, "everything; keys is empty then")                              \
    F(BOOL, heed_leases, 0, 1, "what is leased stays: SL_ERR_LEASED; not with all")   \
    F(BOOL, tell_busy, 0, 1, "SL_ERR_BUSY for what is being written, else SL_ERR_NOT_FOUND")
/* client -> registrar: memory that a process lends to the node as long as it lives */
#define SL_BODY_CONTRIBUTE(F, L)                                \
    F(TEXT, name, 1, 255, "of the contribution, on this node")  \
    F(U64, length_bytes, 1, UINT64_MAX, "added to the ceiling") \
    F(BOOL, lasting, 0, 1, "does not end with the sender")
#define SL_BODY_WITHDRAW(F, L)            F(TEXT, name, 1, 255, "of the contribution")
#define SL_BODY_CONTRIBUTIONS_REPLY(F, L) L(items, contribution, 64, "all of them")
#define SL_BODY_ENGINE(F, L)                                                                     \
    F(U64, engine_id, 0, UINT64_MAX, "0 in a registration; never reused")                        \
    F(U64, pid, 1, UINT32_MAX, "engine process: its death ends the registration")                \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot")                                  \
    F(TEXT, name, 1, 63, "for people")                                                           \
    F(TEXT, model, 32, 32, "model identity: 32 hex digits, first part of the keys")              \
    F(TEXT, key_format, 1, 31, "as in sluicectl keys --format")                                  \
    F(TEXT, seed, 0, 255, "seed of the key format")                                              \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                                          \
    F(U64, world, 1, 64, "ranks")                                                                \
    L(pools, pool, 8, "pools of every rank")                                                     \
    L(regions, region, 65536, "memory of every rank, pool and layer")                            \
    F(TEXT, visible_devices, 0, 255,                                                             \
      "CUDA_VISIBLE_DEVICES of the engine; empty: not set or not told")                          \
    F(U64, team, 0, UINT64_MAX,                                                                  \
      "0: all ranks are here; else from 2^63 on: one process a rank, registrations of one team " \
      "are one engine, which ENGINE_GET knows by this number when all ranks are there")          \
    L(facts, fact, 64, "what its model identity is made of, for people")
#define SL_BODY_ENGINE_ID(F, L)     F(U64, engine_id, 1, UINT64_MAX, "engine")
#define SL_BODY_ENGINES_REPLY(F, L) F(U64S, engine_ids, 0, 1024, "registrations that stand")
/* registrar -> writer: stop touching these; answered when nothing is written on their behalf */
#define SL_BODY_FENCE(F, L)       \
    L(items, claim, SL_BATCH_MAX, \
      "claims that ended; empty: all of the op id; op id 0 too: all that the sender asked for")

/* coordinator -> registrar: blocks that RESERVE held for a hand-over may be evicted again; or one
 * that was started anew asks whether prefill had committed */
#define SL_BODY_HOLD(F, L)                                                                       \
    F(U64, hold_id, 1, UINT64_MAX, "as in RESERVE")                                              \
    F(U64, keys_low, 0, UINT64_MAX,                                                              \
      "digest of the last key; to end it on a peer's word, of the key of a block that is held; " \
      "low half; 0, 0: on ours")                                                                 \
    F(U64, keys_high, 0, UINT64_MAX, "high half")                                                \
    F(BOOL, ask, 0, 1, "whether all of it is committed and held; else it ends")

/* Device memory of pools, one owner each (DESIGN 5.6). client -> registrar */
#define SL_BODY_POOL_TAKE(F, L)                                \
    SL_FIELDS_POOL(F)                                          \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the memory") \
    F(BOOL, sluice, 0, 1,                                      \
      "the rank's swapper makes it, answered when it is ready; false: the sender does")
#define SL_BODY_POOL_AWAIT(F, L) \
    SL_FIELDS_POOL(F)            \
    F(U64, epoch, 0, UINT64_MAX, \
      "0: until it is ready, the sender maps it then; else until the memory of this epoch is not")
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
    F(BOOL, sluice, 0, 1, "a swapper made it")                                          \
    F(U64, inode, 0, UINT64_MAX, "of the file that fd is; 0: not told")                 \
    F(BIN, gpu, 0, 16, "UUID of the GPU that it lies on; empty: none, or not told")
#define SL_BODY_POOL_READY(F, L)                                                        \
    F(U64, epoch, 1, UINT64_MAX, "as POOL_TAKE gave it")                                \
    SL_FIELDS_HANDLE(F, 1)                                                              \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the pool starts in the handle's memory") \
    F(U64, inode, 0, UINT64_MAX, "of the file that fd is; 0: not told")                 \
    F(BIN, gpu, 0, 16, "UUID of the GPU that it lies on; empty: none, or not told")
#define SL_BODY_POOL_MAPPED(F, L)                              \
    F(U64, epoch, 1, UINT64_MAX, "of the memory")              \
    F(BOOL, has_fd, 0, 1, "the mapper has a descriptor of it") \
    F(U64, fd, 0, UINT32_MAX, "which others may map it by when the one before is gone")
#define SL_BODY_POOL_RELEASE(F, L) \
    SL_FIELDS_POOL(F)              \
    F(U64, epoch, 0, UINT64_MAX, "of the memory; 0: whichever, and waiting ends too")
#define SL_BODY_POOL_EPOCH(F, L)  F(U64, epoch, 1, UINT64_MAX, "of the memory")
#define SL_BODY_POOLS_REPLY(F, L) L(pools, holding, 65536, "all of them")
/* registrar -> the rank's swapper */
#define SL_BODY_POOL_MAKE(F, L)                            \
    F(U64, epoch, 1, UINT64_MAX, "of the memory")          \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes, all zero") \
    F(TEXT, name, 1, 63, "deployment, for people")         \
    F(TEXT, pool, 1, 31, "pool name, for people")
#define SL_BODY_POOL_MAKE_REPLY(F, L)                                   \
    SL_FIELDS_HANDLE(F, 0)                                              \
    F(U64, inode, 0, UINT64_MAX, "of the file that fd is; 0: not told") \
    F(BIN, gpu, 0, 16, "UUID of the GPU that it lies on; empty: none")
/* transporter -> the rank's swapper: a descriptor for the NIC of an engine's device memory */
#define SL_BODY_POOL_EXPORT(F, L)              \
    F(U64, engine_id, 1, UINT64_MAX, "engine") \
    F(U64, rank, 0, 63, "rank")                \
    SL_FIELDS_HANDLE(F, 0)                     \
    F(U64, length_bytes, 1, INT64_MAX, "of that memory of it, from the beginning")
#define SL_BODY_POOL_EXPORT_REPLY(F, L)                                                      \
    F(U64, pid, 0, UINT32_MAX, "who hands it out, once, for some seconds: sl_descriptors.h") \
    F(U64, number, 0, UINT64_MAX, "of the socket")                                           \
    F(U64, name, 0, UINT64_MAX, "what to ask for: address")                                  \
    F(U64, life, 0, UINT64_MAX, "likewise")                                                  \
    F(U64, length_bytes, 0, UINT64_MAX, "likewise: bytes of the dmabuf")                     \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the memory begins in the dmabuf")
/* anyone -> registrar: why is this a miss */
#define SL_BODY_EXPLAIN(F, L)       F(TEXTS, keys, 1, 64, "keys of objects, parts or blocks")
#define SL_BODY_EXPLAIN_REPLY(F, L) L(items, story, 64, "one for each key")

/* client -> coordinator */
#define SL_FIELDS_HASHED(F)                                                   \
    F(BIN, hashes, 0, 4194304,                                                \
      "instead of tokens: keys of the blocks, from first_block on, as bytes") \
    F(U64, hash_bytes, 0, 64, "of each")                                      \
    F(U64S, pool_blocks, 0, SL_BATCH_MAX,                                     \
      "with hashes: [pool][block], instead of device_blocks, which is empty then")
/* What is computed, and from where on. */
#define SL_FIELDS_PROMPT(F, before)                                                         \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                              \
    F(BIN, tokens, 0, SL_TOKENS_BYTES_MAX,                                                  \
      "token ids, u32 little-endian, from the start of the prompt")                         \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block] as in sluicectl keys; empty: none") \
    F(U64, first_block, 0, UINT32_MAX, "blocks before this one are " before)                \
    F(BOOL, partial, 0, 1, "an incomplete last block counts")
/* What the engine says of the blocks of an op, and of its session. */
#define SL_FIELDS_SAID(F)                                                                  \
    F(U64, session, 0, 2, "0 nothing is known, 1 it ends with this request, 2 it goes on") \
    F(U64, priority, 0, 3, "of the blocks: 0 nothing is said, 1 low, 2 normal, 3 high")    \
    F(U64, keep_ns, 0, SL_KEEP_NS_MAX,                                                     \
      "so long they and those before them are evicted after others, if that is worth it; 0: not")
/* The session itself, and its rhythm. */
#define SL_FIELDS_SESSION(F)                                                                      \
    F(U64, session_id, 0, UINT64_MAX, "hash of the session's name, by sl_key_hash; 0: not known") \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX,                                                           \
      "from the end of this request until the session's next one is expected; 0: not known")
/* Where the op comes from. */
#define SL_FIELDS_ORIGIN(F)                                                                   \
    F(TEXT, request, 0, 127, "what the engine calls its request, for people; empty: nothing") \
    F(TEXT, traceparent, 0, 55, "W3C trace context of the caller; empty: none")
#define SL_BODY_STORE(F, L)                                                                                          \
    SL_FIELDS_PROMPT(F, "not stored")                                                                                \
    F(U64S, device_blocks, 0, SL_BATCH_MAX,                                                                          \
      "device block of every block from first_block on, the same on all ranks")                                      \
    F(U64, handover_id, 0, UINT64_MAX,                                                                               \
      "0: none; else all or nothing for decode, held until it has it")                                               \
    F(U64, hold_ns, 0, UINT64_MAX, "how long decode may take; 0: setting handover_hold")                             \
    L(ticket, ticket, 4, "one: lend to decode; none: through storage")                                               \
    F(U64S, layer_ends, 0, 32768,                                                                                    \
      "by layers: for each layer of the forward pass, for each pool, how many of the pool's "                        \
      "layers belong to it or to those before; empty: all at once")                                                  \
    F(U64, layers_ready, 0, 4096, "by layers: so many are computed already")                                         \
    F(U64S, layered_blocks, 0, SL_BATCH_MAX,                                                                         \
      "by layers: device_blocks, which is empty then: who does not know layers stores nothing")                      \
    L(events, event, 64,                                                                                             \
      "one a rank: its blocks are read when the event is over; none: the engine has waited")                         \
    F(U64S, ordered_blocks, 0, SL_BATCH_MAX,                                                                         \
      "with events: device_blocks or layered_blocks, which are empty then: who does not know events stores nothing") \
    SL_FIELDS_HASHED(F)                                                                                              \
    F(BOOL, direct, 0, 1,                                                                                            \
      "of a hand-over, without a ticket: the one that decode has offered, if any")                                   \
    SL_FIELDS_SAID(F)                                                                                                \
    F(BIN, before_hash, 0, 64,                                                                                       \
      "with hashes: key of the block before the first one; empty: none, or not known")                               \
    SL_FIELDS_SESSION(F) SL_FIELDS_ORIGIN(F)
#define SL_BODY_STORE_REPLY(F, L)                                                          \
    F(U64, block_count, 0, UINT32_MAX, "blocks asked for")                                 \
    F(BIN, stored, 0, SL_BATCH_MAX, "bitmap, bit i & 7 of byte i >> 3: stored by this op") \
    F(BIN, existed, 0, SL_BATCH_MAX, "bitmap: was there already")                          \
    F(BOOL, fenced, 0, 1, "the device blocks are no longer lent")                          \
    L(receipt, receipt, 4, "one, of a hand-over that is committed: for decode")
#define SL_BODY_LOAD(F, L)                                                                       \
    SL_FIELDS_PROMPT(F, "on the device already")                                                 \
    F(U64S, device_blocks, 0, SL_BATCH_MAX, "where to load every block from first_block on")     \
    F(U64, handover_id, 0, UINT64_MAX,                                                           \
      "0: none; else waits until prefill has committed, and loads all or fails")                 \
    L(receipt, receipt, 4, "one, when it has come already")                                      \
    F(BOOL, direct, 0, 1, "makes a ticket under which prefill lends")                            \
    F(U64S, layer_ends, 0, 32768, "by layers, as in STORE")                                      \
    F(U64, layers_in, 0, 4096, "by layers: so many were answered to be in")                      \
    F(U64, layer_blocks, 0, SL_BATCH_MAX, "of so many blocks")                                   \
    L(events, event, 64,                                                                         \
      "one a rank: its blocks are written when the event is over; none: the engine has waited")  \
    F(U64S, ordered_blocks, 0, SL_BATCH_MAX,                                                     \
      "with events: device_blocks, which is empty then: who does not know events loads nothing") \
    SL_FIELDS_HASHED(F)                                                                          \
    F(TEXT, prefill_node, 0, 31, "of a hand-over: who is asked for it; empty: nobody")           \
    SL_FIELDS_SAID(F)                                                                            \
    F(U64, prefill_rate, 0, SL_PREFILL_MAX,                                                      \
      "tokens the engine computes in a second: later blocks are not waited for; 0: all are")     \
    F(U64, prefill_doubles, 0, SL_PREFILL_MAX,                                                   \
      "with it: place of the token that takes twice as long as the first; 0: all take as long")  \
    SL_FIELDS_SESSION(F) SL_FIELDS_ORIGIN(F)
#define SL_BODY_LOAD_REPLY(F, L)                                    \
    F(U64, block_count, 0, UINT32_MAX,                              \
      "blocks loaded: the longest prefix all ranks and pools have") \
    F(U64, from_memory, 0, UINT32_MAX, "of these")                  \
    F(U64, from_disk, 0, UINT32_MAX, "of these")                    \
    F(U64, from_remote, 0, UINT32_MAX, "of these")                  \
    F(U64, bytes, 0, UINT64_MAX, "copied to the devices")           \
    F(BOOL, fenced, 0, 1, "the device blocks are no longer lent")   \
    F(U64, not_awaited, 0, UINT32_MAX,                              \
      "blocks behind these that are here: sooner computed than read")
/* What became of an op, block by block: of the last ops, and of those under way. */
#define SL_BODY_OP_STORY(F, L)                                                                  \
    F(TEXT, id, 1, 127, "trace id of the op, hex digits, or what the engine calls its request") \
    F(U64, skip, 0, UINT32_MAX, "so many younger ops that match are passed over")
#define SL_BODY_OP_STORY_REPLY(F, L)                                                        \
    F(U64, op, 1, UINT64_MAX, "op id")                                                      \
    F(U64, trace, 0, UINT64_MAX, "trace id")                                                \
    F(U64, engine_id, 0, UINT64_MAX, "engine")                                              \
    F(BOOL, store, 0, 1, "else a load")                                                     \
    F(BOOL, running, 0, 1, "it has not ended")                                              \
    F(U64, result, 0, 255, "its code")                                                      \
    F(TEXT, reason, 0, 255, "why it failed, or what it waits for")                          \
    F(TEXT, requester, 0, 63, "process that asked for it")                                  \
    SL_FIELDS_ORIGIN(F)                                                                     \
    F(TEXT, model, 0, 32, "model identity; empty: the engine was not known")                \
    F(U64, first_block, 0, UINT32_MAX, "of its prompt; runs begin there")                   \
    F(U64, ago_ns, 0, UINT64_MAX, "since it began")                                         \
    F(U64, took_ns, 0, UINT64_MAX, "until it ended, or until now")                          \
    L(runs, run, 4096, "what became of its blocks, in order")                               \
    F(U64, keys_first, 0, UINT32_MAX, "number of the block that the first of the keys has") \
    F(TEXTS, keys, 0, 64, "MODEL/BLOCK of the first blocks that were not there, in a row")
/* Anyone who knows the session: an engine, or the agents' framework beside it. */
#define SL_BODY_SESSION_PAUSE(F, L)                                                             \
    F(U64, session_id, 1, UINT64_MAX, "of its ops: hash of the session's name, by sl_key_hash") \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX,                                                         \
      "from now until its next request is expected; 0: it is about to come")                    \
    F(BOOL, unknown, 0, 1, "nobody knows when: what was told counts no more")
/* Who uses values by their keys, and knows the session: what it asked for or stored in its turn. */
#define SL_BODY_SESSION_TURN(F, L)                                                              \
    F(U64, session_id, 1, UINT64_MAX, "hash of the session's name, by sl_key_hash")             \
    F(U64, pause_ns, 0, SL_KEEP_NS_MAX, "until its next turn is expected; 0: not known")        \
    F(BOOL, ends, 0, 1, "no other turn is expected")                                            \
    F(BOOL, asked, 0, 1,                                                                        \
      "the keys were asked for; else they were stored. What the session has before the first "  \
      "of them stays; where it has not that one, stored ones come behind all that it has")      \
    F(U64, lane, 0, SL_SESSION_LANES - 1u, "of ranks that have values of their own: which one") \
    F(TEXTS, keys, 1, SL_BATCH_MAX, "of the values, in the order of the chain")
/* decode's engine: first tokens came */
#define SL_BODY_ARRIVED(F, L)      L(items, receipt, 1024, "one a hand-over")
#define SL_BODY_TICKET(F, L)       F(U64, handover_id, 1, UINT64_MAX, "whose load is direct")
#define SL_BODY_TICKET_REPLY(F, L) L(ticket, ticket, 4, "one: for prefill")
#define SL_BODY_HANDOVER_END(F, L) \
    F(U64S, handover_ids, 1, 1024, "decode has them, or nobody wants them")
/* What the nodes of a hand-over tell each other: coordinator -> its transporter -> the other node's
 * -> its coordinator. 1 is said again until it is answered, 4 and 5 once. */
#define SL_BODY_HANDOVER_WORD(F, L)                                                                \
    F(TEXT, node, 1, 31, "who is told; from a transporter to its coordinator: whose it is")        \
    F(U64, handover_id, 1, UINT64_MAX, "hand-over")                                                \
    F(U64, state, 1, 5,                                                                            \
      "1 decode waits for it, 2 it is committed, 3 it failed, 4 decode gave up, 5 decode is done " \
      "with what is held for it")                                                                  \
    L(receipt, receipt, 4, "committed, done: one; decode waits: of what, when it knows")           \
    L(ticket, ticket, 4, "decode waits, direct: one, when there is one")                           \
    F(TEXT, reason, 0, 159, "failed: why, for people")
#define SL_BODY_OP(F, L) F(U64, target_op, 1, UINT64_MAX, "op id of the op meant")
#define SL_BODY_OP_REPLY(F, L) \
    F(BOOL, fenced, 0, 1, "nothing touches the op's device blocks any more")
/* Of ops by layers. What is ready is told once and not waited for; the STORE says it too when it
 * comes again. One process a rank: each speaks for its own, with layers 0, which a coordinator that
 * does not know it refuses. */
#define SL_BODY_LAYERS(F, L)                                                                \
    F(U64, target_op, 1, UINT64_MAX, "op id of the op meant")                               \
    F(U64, layers, 0, 4096, "the first so many layers, of all ranks; 0: rank_layers")       \
    F(U64, rank_layers, 0, 4096,                                                            \
      "the first so many layers, of rank; the sender may be another client")                \
    F(U64, rank, 0, 63, "with rank_layers: whose they are")                                 \
    F(U64, member, 0, UINT64_MAX, "with rank_layers: engine id of the rank's registration") \
    F(BOOL, wait, 0, 1, "of a LOAD: answered when they are in; else of a STORE: they are computed")
#define SL_BODY_LAYERS_REPLY(F, L)            \
    F(U64, layers, 0, 4096, "so many are in") \
    F(U64, block_count, 0, UINT32_MAX,        \
      "of so many blocks: what the load ends with, unless it fails")

#define SL_BODY_KEYS(F, L)                                                 \
    F(TEXT, format, 1, 31, "as in sluicectl keys --format")                \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                    \
    F(BIN, tokens, 0, SL_TOKENS_BYTES_MAX, "token ids, u32 little-endian") \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block]; empty: none")     \
    F(TEXT, seed, 0, 255, "seed")                                          \
    F(TEXT, parent, 0, 255, "hex key of the block before; empty: none")    \
    F(BOOL, partial, 0, 1, "an incomplete last block gets a key where the format has one")
#define SL_BODY_KEYS_REPLY(F, L) F(TEXTS, keys, 0, SL_BATCH_MAX, "one for each block")

#define SL_BODY_COPY(F, L)                                                                   \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                               \
    F(U64, rank, 0, 63, "rank")                                                              \
    F(BOOL, out, 0, 1, "true: device to arena, false: arena to device")                      \
    L(items, piece, SL_BATCH_MAX, "parts")                                                   \
    F(BOOL, chunks, 0, 1, "out: answers the hashes of the parts' chunks instead of digests") \
    F(BIN, event, 0, 64,                                                                     \
      "of cuIpcGetEventHandle: no device block is touched before it is over; empty: none")   \
    F(BOOL, look, 0, 1, "out: nothing is copied; answers digests of what lies in the blocks")
#define SL_BODY_COPY_REPLY(F, L)                                                            \
    F(BIN, done, 0, SL_BATCH_MAX, "bitmap over items")                                      \
    F(BIN, digests, 0, 1048576,                                                             \
      "out: 16 bytes an item: low, high, u64 little-endian; of the bytes that were copied") \
    F(BIN, chunks, 0, 8388608,                                                              \
      "out, if asked: u64 little-endian of every chunk of a part that is whole now, item by item")

#define SL_BODY_DISK_WRITE(F, L) L(items, spill, SL_BATCH_MAX, "values to make durable")
#define SL_BODY_DISK_WRITE_REPLY(F, L)                                                     \
    L(items, spilled, SL_BATCH_MAX, "one for each value")                                  \
    F(U64, budget_left, 0, INT64_MAX, "with disk_write_budget: bytes that may be written") \
    F(U64, budget_debt, 0, INT64_MAX, "likewise: written beyond it, to be made up for")
#define SL_BODY_DISK_READ(F, L)                                              \
    L(items, fill, SL_BATCH_MAX, "values to bring in; digests are verified") \
    F(BOOL, ahead, 0, 1, "nobody waits for them: behind all others")         \
    F(U64, raise, 0, UINT64_MAX,                                             \
      "0: none, else the generation of a target: its value is waited for now; items are empty")
#define SL_BODY_DISK_FORGET(F, L) \
    L(items, forget, SL_BATCH_MAX, "removed for good: must not come back after a restart")
#define SL_BODY_DISK_FOUND(F, L)                                                                   \
    F(BOOL, first, 0, 1, "a scan begins: what is not found by its end is not on disk")             \
    F(BOOL, last, 0, 1, "the scan is over, the tier takes work")                                   \
    L(items, found, SL_BATCH_MAX, "values on disk")                                                \
    F(BIN, store, 0, 16, "name of the disk, told with first; empty: it has none")                  \
    F(BIN, members, 0, 792,                                                                        \
      "told with first: 24 bytes a disk, name and epoch: itself (epoch 0: it says no more), then " \
      "those that missed nothing; empty: it keeps no list")                                        \
    F(BOOL, blank, 0, 1, "told with first: no value is on the disk")                               \
    F(U64, budget_left, 0, INT64_MAX,                                                              \
      "told with first, with disk_write_budget: bytes that may be written")                        \
    F(U64, budget_debt, 0, INT64_MAX, "likewise: written beyond it, to be made up for")            \
    F(U64, boot_generation, 0, UINT64_MAX,                                                         \
      "of the registrar it is meant for; 0: an older tierer, which does not say")                  \
    F(U64, heard_fence, 0, UINT64_MAX,                                                             \
      "1 + seq of the newest FENCE of everything that had come when it was made; 0: likewise")
/* registrar -> tierer: kept on the disk before what follows is acknowledged */
#define SL_BODY_DISK_MEMBERS(F, L)                                                           \
    F(U64, epoch, 1, UINT64_MAX, "by chance, of this list")                                  \
    F(BIN, members, 0, 768, "disks that have missed nothing: 24 bytes each, name and epoch") \
    F(BOOL, empty, 0, 1, "the disk itself has: its values go, it begins anew under another name")
#define SL_BODY_DISK_RECLAIM(F, L)                                                    \
    F(U64, segment, 0, UINT32_MAX, "the oldest: it is to go, what is worth it stays") \
    F(BOOL, gone, 0, 1, "its file has gone: forget the places there")
/* Between transporters of two nodes. What else comes from a peer is refused. */
#define SL_BODY_PEER_HELLO(F, L)                                                \
    F(TEXT, node, 1, 31, "the sender, as its key is called at the receiver")    \
    F(U64, incarnation, 1, UINT64_MAX, "of the sender: grows with every start") \
    F(TEXT, fabric, 0, 15, "what carries its bytes")                            \
    F(BIN, address, 0, 65536, "of its fabric, for the receiver")
#define SL_BODY_PEER_HELLO_REPLY(F, L) \
    SL_BODY_PEER_HELLO(F, L)           \
    L(windows, window, 64, "arenas that the receiver may read")
/* client -> transporter, and between transporters: objects of other nodes by their keys */
#define SL_BODY_SEEK(F, L)                                                    \
    F(TEXTS, keys, 0, 4096, "object keys")                                    \
    F(BOOL, lease, 0, 1, "lease what is there, where the holder has leases")  \
    F(BOOL, remove, 0, 1, "remove it, where the holder lets its peers do so") \
    F(BOOL, heed_leases, 0, 1, "of a removal: what is leased stays")
#define SL_BODY_SEEK_REPLY(F, L)             \
    L(items, seen, 4096, "one for each key") \
    F(TEXTS, nodes, 0, 64, "who has them; empty between nodes")
#define SL_BODY_PEER_PIN(F, L)                                                \
    F(U64, ttl_ns, 1, UINT64_MAX, "pins end after; the holder may take less") \
    F(U64, bytes_max, 1, UINT64_MAX,                                          \
      "what goes beyond is SL_ERR_LIMIT; the first value always goes")        \
    F(BOOL, chain, 0, 1, "nothing is wanted behind a key that is not there")  \
    L(items, sought, 512, "keys")
#define SL_BODY_PEER_PIN_REPLY(F, L)                                      \
    F(U64, pin_id, 0, UINT64_MAX, "names the pins; 0: nothing is pinned") \
    F(U64, ttl_ns, 0, UINT64_MAX, "they end after")                       \
    L(items, place, 512, "one for each key")
#define SL_BODY_PEER_UNPIN(F, L) F(U64S, pin_ids, 1, 1024, "of the sender's own")
#define SL_BODY_NODES_REPLY(F, L)                                 \
    F(TEXT, name, 0, 31, "this node")                             \
    F(TEXT, listen, 0, 128, "where peers ask it; empty: nowhere") \
    F(TEXT, fabric, 0, 191, "what carries its bytes")             \
    L(nodes, node, 64, "peers")

/* Direct hand-over of blocks.
 * prefill's coordinator -> its transporter. Pieces of a part come in order, without gaps. */
#define SL_BODY_LEND(F, L)                                                                        \
    F(BIN, ticket, 1, 128, "who may read: the ticket's node")                                     \
    F(U64, number, 1, UINT32_MAX, "of those of one loan: 1, then 2, ...")                         \
    F(BOOL, last, 0, 1, "nothing follows: all of every part was named; answered when it is over") \
    L(pieces, arrived, 512, "ready to be read")                                                   \
    L(spots, spot, 512, "one for each: where its part lies; item counts on from 0")
/* prefill's transporter -> decode's. op_id: the sender's number of the loan. */
#define SL_BODY_PEER_LEND(F, L)                                                            \
    F(BIN, ticket, 1, 128, "of a BRING of the receiver")                                   \
    F(U64, number, 0, UINT32_MAX, "as in LEND; the same when it is repeated")              \
    F(BOOL, last, 0, 1, "nothing follows")                                                 \
    F(U64, code, 0, 255, "not SL_OK: the loan is over, nothing of it may be read: sl_err") \
    F(TEXT, text, 0, 240, "with code: why, for people")                                    \
    L(doors, door, 512, "keys of parts that none before it named")                         \
    L(pieces, arrived, 512, "ready to be read")
#define SL_BODY_PEER_LEND_REPLY(F, L) F(U64, number, 0, UINT32_MAX, "as in the request")
/* decode's transporter -> who sent BRING with a ticket */
#define SL_BODY_LANDED(F, L)                                                                       \
    F(U64, handover, 1, UINT64_MAX, "number of the ticket")                                        \
    F(U64, state, 0, 2, "0 the ticket may be given out, 1 pieces, 2 the last pieces: all is here") \
    F(TEXT, from, 0, 31, "node that lends")                                                        \
    L(pieces, arrived, 512, "they lie at all spots of their parts, digests are right")
/* never on the wire: completions inside a process */
#define SL_BODY_LOCAL_IO(F, L)                      \
    F(U64, cookie, 0, UINT64_MAX, "of the request") \
    F(U64, bytes, 0, UINT64_MAX, "transferred")     \
    F(U64, os_code, 0, 65535, "errno, 0: fine")
#define SL_BODY_LOCAL_DIED(F, L)                  \
    F(U64, cookie, 0, UINT64_MAX, "of the watch") \
    F(U64, pid, 0, UINT32_MAX, "process")         \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot")
#define SL_BODY_LOCAL_JOB(F, L) F(U64, cookie, 0, UINT64_MAX, "of the job; result is the code")

/* X(NAME, body, number, TABLE, help) makes SL_MSG_NAME and struct sl_body_BODY. P is a request and
 * its reply, NAME_REPLY, which has the next number: P(X, NAME, body, number, its table, help, the
 * reply's table, help). */
#define SL_MSG_ROWS(P, X)                                                                          \
    X(PING, ping, 2, SL_BODY_EMPTY, "are you there")                                               \
    X(PONG, pong, 3, SL_BODY_PONG, "yes")                                                          \
    P(X, HELLO, hello, 10, HELLO, "who is there", HELLO_REPLY, "known")                            \
    P(X, RESERVE, reserve, 12, RESERVE, "room for objects to be written", RESERVE_REPLY, "grants") \
    P(X, COMMIT, commit, 14, COMMIT, "make visible", COMMIT_REPLY, "done, and extents in advance") \
    P(X, ABORT, abort, 16, ABORT, "give reservations back", CODES, "done")                         \
    P(X, REMOVE, remove, 18, REMOVE, "remove objects for good", CODES, "done")                     \
    P(X, FLUSH, flush, 24, EMPTY, "answered when all that was committed is durable", EMPTY,        \
      "durable")                                                                                   \
    P(X, EXPLAIN, explain, 28, EXPLAIN, "why objects are not here", EXPLAIN_REPLY,                 \
      "what is known of each")                                                                     \
    P(X, ENGINE_REGISTER, engine_register, 30, ENGINE, "an engine and its pools", ENGINE_ID,       \
      "registered")                                                                                \
    P(X, ENGINE_GET, engine_get, 32, ENGINE_ID, "what was registered", ENGINE, "registration")     \
    P(X, ENGINE_END, engine_end, 34, ENGINE_ID, "registration ends", EMPTY, "ended")               \
    P(X, FENCE, fence, 36, FENCE, "stop writing on behalf of claims or of an op", EMPTY,           \
      "nothing writes or reads there any more")                                                    \
    P(X, HOLD, hold, 38, HOLD, "blocks held for a hand-over may go; or are they all there", EMPTY, \
      "they may; they are")                                                                        \
    P(X, STORE, store, 40, STORE, "store blocks from the device", STORE_REPLY, "stored")           \
    P(X, LOAD, load, 42, LOAD, "load the longest prefix to the device", LOAD_REPLY, "loaded")      \
    P(X, CANCEL, cancel, 44, OP, "end an op early", OP_REPLY, "ended, or was not there")           \
    P(X, OP_FENCED, op_fenced, 46, OP, "answered when the op's device blocks are free", OP_REPLY,  \
      "free")                                                                                      \
    P(X, ARRIVED, arrived, 48, ARRIVED, "what loads of hand-overs wait for is committed", CODES,   \
      "SL_ERR_NOT_FOUND: that load is gone")                                                       \
    P(X, KEYS, keys, 50, KEYS, "keys of a token sequence", KEYS_REPLY, "keys")                     \
    P(X, HANDOVER_END, handover_end, 52, HANDOVER_END, "prefill gives hand-overs back", CODES,     \
      "done, or not known")                                                                        \
    P(X, TICKET, ticket, 54, TICKET, "decode's engine asks for its ticket", TICKET_REPLY,          \
      "SL_ERR_BUSY: there is none yet")                                                            \
    P(X, COPY, copy, 60, COPY, "parts between device and arena", COPY_REPLY, "copied")             \
    P(X, LAYERS, layers, 62, LAYERS, "layers of a STORE are computed, of a LOAD waited for",       \
      LAYERS_REPLY, "noted; they are in, or the op's code")                                        \
    P(X, DISK_WRITE, disk_write, 70, DISK_WRITE, "write behind", DISK_WRITE_REPLY, "durable")      \
    P(X, DISK_READ, disk_read, 72, DISK_READ, "read into extents", CODES, "read and verified")     \
    P(X, DISK_FORGET, disk_forget, 74, DISK_FORGET, "tombstones", CODES, "durable")                \
    P(X, DISK_FOUND, disk_found, 76, DISK_FOUND, "tierer to registrar: what a start found", CODES, \
      "SL_OK known, SL_ERR_NOT_FOUND unwanted")                                                    \
    P(X, DISK_RECLAIM, disk_reclaim, 78, DISK_RECLAIM, "tierer to registrar: a segment goes",      \
      EMPTY, "it may go; it is forgotten")                                                         \
    P(X, NODES, nodes, 84, EMPTY, "the transporter's peers", NODES_REPLY, "peers")                 \
    P(X, DISK_MEMBERS, disk_members, 86, DISK_MEMBERS, "which disks have missed nothing", EMPTY,   \
      "durable")                                                                                   \
    P(X, PEER_HELLO, peer_hello, 90, PEER_HELLO, "one node greets another", PEER_HELLO_REPLY,      \
      "what it may read")                                                                          \
    P(X, PEER_PIN, peer_pin, 92, PEER_PIN, "keep these for me to read", PEER_PIN_REPLY,            \
      "where they are")                                                                            \
    P(X, PEER_UNPIN, peer_unpin, 94, PEER_UNPIN, "I have read them", EMPTY, "done")                \
    P(X, LEND, lend, 114, LEND, "another node may read blocks of pools", EMPTY,                    \
      "it is named; of the last: all of it was read")                                              \
    P(X, PEER_LEND, peer_lend, 116, PEER_LEND, "read this", PEER_LEND_REPLY,                       \
      "read, being read, ...")                                                                     \
    P(X, LANDED, landed, 118, LANDED, "what came of a hand-over", EMPTY,                           \
      "taken: prefill is told the code")                                                           \
    P(X, HANDOVER_WORD, handover_word, 120, HANDOVER_WORD, "one side to the other's node", EMPTY,  \
      "on its way, or taken")                                                                      \
    P(X, POOL_TAKE, pool_take, 130, POOL_TAKE, "become a pool's owner, or have it made",           \
      POOL_STATE, "SL_ERR_EXISTS: it is ready; SL_ERR_BUSY: another owner makes it")               \
    P(X, POOL_AWAIT, pool_await, 132, POOL_AWAIT, "answered when the pool is, or is over",         \
      POOL_STATE, "SL_ERR_PEER_DIED: its owner died while it was waited for")                      \
    P(X, POOL_READY, pool_ready, 134, POOL_READY, "its owner has made it", EMPTY,                  \
      "others may map it")                                                                         \
    P(X, POOL_MAPPED, pool_mapped, 136, POOL_MAPPED, "the sender maps it", EMPTY,                  \
      "SL_ERR_STALE: it is over, unmap it")                                                        \
    P(X, POOL_RELEASE, pool_release, 138, POOL_RELEASE, "the sender maps it no more", EMPTY,       \
      "noted")                                                                                     \
    P(X, POOL_REVOKE, pool_revoke, 140, POOL_EPOCH, "its memory goes: all shall unmap it", EMPTY,  \
      "nobody maps it any more")                                                                   \
    P(X, POOLS, pools, 142, EMPTY, "the table of pools", POOLS_REPLY, "all of them")               \
    P(X, POOL_MAKE, pool_make, 144, POOL_MAKE, "make memory for others", POOL_MAKE_REPLY,          \
      "made, the same when asked again")                                                           \
    P(X, POOL_DROP, pool_drop, 146, POOL_EPOCH, "unmap it, and free what was made here", EMPTY,    \
      "it is not mapped here, nor will be")                                                        \
    P(X, CONTRIBUTE, contribute, 150, CONTRIBUTE, "lend memory to the node", EMPTY, "it counts")   \
    P(X, WITHDRAW, withdraw, 152, WITHDRAW, "take it back: what lies there alone goes", EMPTY,     \
      "gone")                                                                                      \
    P(X, CONTRIBUTIONS, contributions, 154, EMPTY, "who lends what", CONTRIBUTIONS_REPLY,          \
      "all of them")                                                                               \
    P(X, ENGINE_OVER, engine_over, 156, ENGINE_ID,                                                 \
      "to swappers, coordinator, transporters: its registration ended, its process lives", EMPTY,  \
      "its memory is used here no more")                                                           \
    P(X, DAMAGED, damaged, 158, DAMAGED, "values in memory are not what was stored", CODES,        \
      "SL_ERR_NOT_FOUND: it was gone already")                                                     \
    P(X, SEEK, seek, 160, SEEK,                                                                    \
      "what other nodes have of these, or remove it there; to a peer: what it has", SEEK_REPLY,    \
      "this")                                                                                      \
    P(X, ENGINES, engines, 164, EMPTY, "which engines are registered", ENGINES_REPLY, "these")     \
    P(X, ENGINE_ADDED, engine_added, 166, ENGINE_ID,                                               \
      "registrar to transporter: its memory may be registered", EMPTY, "noted")                    \
    P(X, POOL_EXPORT, pool_export, 172, POOL_EXPORT,                                               \
      "make a dmabuf of device memory; SL_ERR_BUSY: ask again, it is being mapped",                \
      POOL_EXPORT_REPLY, "made; SL_ERR_UNSUPPORTED: such memory has none, and why")                \
    P(X, BRING, bring, 174, BRING, "bring what is not in memory", BRING_REPLY,                     \
      "SL_OK: it came; SL_ERR_EXISTS: it was here, on disk perhaps; SL_ERR_NO_SPACE: no room")     \
    P(X, OP_STORY, op_story, 198, OP_STORY, "what became of an op's blocks", OP_STORY_REPLY,       \
      "SL_ERR_NOT_FOUND: not among the last ones")                                                 \
    P(X, SESSION_TURN, session_turn, 192, SESSION_TURN, "values that a session used", EMPTY,       \
      "it was noted")                                                                              \
    P(X, SESSION_PAUSE, session_pause, 190, SESSION_PAUSE, "when a session goes on", EMPTY,        \
      "SL_ERR_NOT_FOUND: no op named it; SL_ERR_UNSUPPORTED: no sessions here")                    \
    X(LOCAL_IO, local_io, 1000, SL_BODY_LOCAL_IO, "a disk request ended")                          \
    X(LOCAL_DIED, local_died, 1002, SL_BODY_LOCAL_DIED, "a watched process is gone")               \
    X(LOCAL_JOB, local_job, 1004, SL_BODY_LOCAL_JOB, "a job ended")
#define SL_MSG_PAIR(X, NAME, body, number, TABLE, help, REPLY_TABLE, reply_help) \
    X(NAME, body, number, SL_BODY_##TABLE, help)                                 \
    X(NAME##_REPLY, body##_reply, (number) + 1, SL_BODY_##REPLY_TABLE, reply_help)
#define SL_MSG_TABLE(X) SL_MSG_ROWS(SL_MSG_PAIR, X)

#endif
