/* ipc/sl_msg_table.h - the one table of messages. Structs, encoder, decoder, validation and the
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

#define SL_WIRE_VERSION     2
#define SL_WIRE_VERSION_MIN 1
#define SL_BATCH_MAX        65536
#define SL_TOKENS_BYTES_MAX (16u << 20) /* 4 Mi tokens of 4 bytes */

#define SL_ITEM_WANT(F, L)                                                \
    F(TEXT, key, 1, 1024, "object key")                                   \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "size of the value")      \
    F(U64, group, 0, SL_BATCH_MAX, "0: none, else 1 + index into groups") \
    F(U64, part_index, 0, 511, "which part of the group")                 \
    F(TEXT, writer, 0, 31, "actor that will write the bytes; empty: the sender")
#define SL_ITEM_GROUP(F, L)                                         \
    F(TEXT, key, 1, 1024, "MODEL/BLOCK")                            \
    F(U64, part_count, 1, 512, "parts that make the block visible") \
    F(U64, transient_ns, 0, UINT64_MAX, "time to live after the commit; 0: no limit")
#define SL_ITEM_GRANT(F, L)                                                                 \
    F(U64, code, 0, 255, "SL_OK granted, SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_NO_SPACE, ...") \
    F(U64, ref, 0, UINT32_MAX, "record of the claim")                                       \
    F(U64, generation, 0, UINT64_MAX, "generation of the extent")                           \
    F(U64, arena, 0, 65535, "arena id")                                                     \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")                       \
    F(U64, busy_ns, 0, UINT64_MAX, "with SL_ERR_BUSY: the other reservation ends within")
#define SL_ITEM_CLAIM(F, L)                                            \
    F(U64, ref, 1, UINT32_MAX, "record of the claim")                  \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")      \
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value, low half") \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value, high half")
#define SL_ITEM_PUBLICATION(F, L)                                      \
    F(TEXT, key, 1, 1024, "object key")                                \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "size of the value")   \
    F(U64, ref, 1, UINT32_MAX, "record of the grant")                  \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")      \
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value, low half") \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value, high half")
#define SL_ITEM_LOCATION(F, L)                                       \
    F(U64, code, 0, 255, "SL_OK or SL_ERR_NOT_FOUND")                \
    F(U64, ref, 0, UINT32_MAX, "record")                             \
    F(U64, generation, 0, UINT64_MAX, "0: not in memory")            \
    F(U64, length_bytes, 0, SL_VALUE_BYTES_MAX, "size of the value") \
    F(BOOL, on_disk, 0, 1, "a durable copy exists")
#define SL_ITEM_POOL(F, L)                                          \
    F(TEXT, name, 1, 31, "pool name, part of the keys: [a-z0-9_-]") \
    F(U64, kind, 0, 255, "enum sl_pool_kind")
#define SL_ITEM_REGION(F, L)                                                                  \
    F(U64, rank, 0, 63, "rank")                                                               \
    F(U64, pool, 0, 7, "index into pools")                                                    \
    F(U64, layer, 0, 4095,                                                                    \
      "position in the part: parts are the layers' pieces one after the other")               \
    F(U64, handle_kind, 0, 7, "enum sl_memory_kind")                                          \
    F(U64, pid, 0, UINT32_MAX, "process that holds fd")                                       \
    F(U64, fd, 0, UINT32_MAX, "descriptor in that process")                                   \
    F(BIN, handle, 0, 64, "device IPC handle")                                                \
    F(U64, offset_bytes, 0, UINT64_MAX, "where the layer starts in the handle's memory")      \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the layer's tensor")                        \
    F(U64, block_stride_bytes, 1, UINT64_MAX, "from block i to block i + 1")                  \
    F(U64, piece_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of one block in this layer; <= stride") \
    F(U64, block_count, 1, UINT32_MAX, "blocks; (count - 1) * stride + piece <= length")
#define SL_ITEM_PIECE(F, L)                                                      \
    F(U64, pool, 0, 7, "index into the engine's pools")                          \
    F(U64, device_block, 0, UINT32_MAX, "block id on the device")                \
    F(U64, arena, 0, 65535, "arena id")                                          \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data")            \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the part")             \
    F(U64, ref, 1, UINT32_MAX, "record: out checks that the claim still stands") \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")
#define SL_ITEM_SPILL(F, L)                                           \
    F(TEXT, key, 1, 1024, "object key")                               \
    F(TEXT, group_key, 0, 1024, "MODEL/BLOCK, empty: none")           \
    F(U64, part_index, 0, 511, "which part of the group")             \
    F(U64, part_count, 0, 512, "parts of the group, 0: none")         \
    F(U64, arena, 0, 65535, "arena id")                               \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value") \
    F(U64, generation, 1, UINT64_MAX, "generation of the extent")     \
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value")          \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value")
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
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value")                 \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value")                \
    F(U64, arena, 0, 65535, "target arena")                                  \
    F(U64, offset_bytes, 0, UINT64_MAX, "target offset in the arena's data") \
    F(U64, ref, 1, UINT32_MAX, "record of the claim")                        \
    F(U64, generation, 1, UINT64_MAX, "generation of the target extent")
#define SL_ITEM_FOUND(F, L)                                           \
    F(TEXT, key, 1, 1024, "object key")                               \
    F(TEXT, group_key, 0, 1024, "MODEL/BLOCK, empty: none")           \
    F(U64, part_index, 0, 511, "which part of the group")             \
    F(U64, part_count, 0, 512, "parts of the group, 0: none")         \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value") \
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value")          \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value")         \
    F(U64, segment, 0, UINT32_MAX, "segment number")                  \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment")
#define SL_ITEM_FORGET(F, L)                                                \
    F(TEXT, key, 1, 1024, "object key")                                     \
    F(U64, segment, 0, UINT32_MAX, "segment number; 0: wherever it is")     \
    F(U64, disk_offset_bytes, 0, UINT64_MAX, "of the value in the segment") \
    F(U64, length_bytes, 1, SL_VALUE_BYTES_MAX, "bytes of the value")
#define SL_ITEM_CHUNK(F, L)                                           \
    F(U64, arena, 0, 65535, "arena id")                               \
    F(U64, offset_bytes, 0, UINT64_MAX, "offset in the arena's data") \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of the region")

#define SL_ITEM_STORY(F, L)                                                                    \
    F(U64, code, 0, 255, "SL_OK there, SL_ERR_BUSY being written, SL_ERR_NOT_FOUND not there") \
    F(U64, ago_ns, 0, UINT64_MAX, "how long ago it went; 0: not known")                        \
    F(TEXT, text, 0, 255, "where it is, or why it is not; for people")

#define SL_ITEM_ASKED(F, L)                                               \
    F(TEXT, key, 1, 1024, "object key")                                   \
    F(U64, group, 0, SL_BATCH_MAX, "0: none, else 1 + index into groups") \
    F(U64, part_index, 0, 511, "which part of the group")
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
    F(U64, digest_low, 0, UINT64_MAX, "digest of the value, low half")                         \
    F(U64, digest_high, 0, UINT64_MAX, "digest of the value, high half")
#define SL_ITEM_WINDOW(F, L)                                 \
    F(U64, arena, 0, 65535, "arena id")                      \
    F(U64, length_bytes, 1, UINT64_MAX, "bytes of its data") \
    F(BIN, key, 1, 65536, "the fabric's key: remote READ of this arena, for this peer alone")
#define SL_ITEM_NODE(F, L)                                                       \
    F(TEXT, name, 1, 31, "name of the peer")                                     \
    F(TEXT, address, 0, 128, "where it is asked; empty: it only asks us")        \
    F(TEXT, state, 0, 15, "alive, away, broken, or asks: it is no peer of ours") \
    F(U64, incarnation, 0, UINT64_MAX, "of its transporter; 0: never heard of")  \
    F(U64, round_trip_ns, 0, UINT64_MAX, "of the last greeting")                 \
    F(U64, heard_ago_ns, 0, UINT64_MAX, "since it last answered or asked")       \
    F(U64, read_bytes, 0, UINT64_MAX, "read from it")                            \
    F(U64, read_values, 0, UINT64_MAX, "read from it")                           \
    F(U64, failures, 0, UINT64_MAX, "requests and transfers that failed")        \
    F(U64, pinned_values, 0, UINT64_MAX, "of ours that it keeps pinned now")     \
    F(TEXT, link, 0, 15, "up, connecting or down: where bytes go")

/* X(item, TABLE) makes struct sl_item_ITEM */
#define SL_ITEM_TABLE(X)                \
    X(want, SL_ITEM_WANT)               \
    X(group, SL_ITEM_GROUP)             \
    X(grant, SL_ITEM_GRANT)             \
    X(claim, SL_ITEM_CLAIM)             \
    X(publication, SL_ITEM_PUBLICATION) \
    X(location, SL_ITEM_LOCATION)       \
    X(pool, SL_ITEM_POOL)               \
    X(region, SL_ITEM_REGION)           \
    X(piece, SL_ITEM_PIECE)             \
    X(spill, SL_ITEM_SPILL)             \
    X(spilled, SL_ITEM_SPILLED)         \
    X(fill, SL_ITEM_FILL)               \
    X(found, SL_ITEM_FOUND)             \
    X(forget, SL_ITEM_FORGET)           \
    X(chunk, SL_ITEM_CHUNK)             \
    X(story, SL_ITEM_STORY)             \
    X(asked, SL_ITEM_ASKED)             \
    X(sought, SL_ITEM_SOUGHT)           \
    X(place, SL_ITEM_PLACE)             \
    X(window, SL_ITEM_WINDOW)           \
    X(node, SL_ITEM_NODE)

#define SL_BODY_EMPTY(F, L) F(U64, unused, 0, 0, "always 0")

/* any actor */
#define SL_BODY_PONG(F, L)                       \
    F(TEXT, name, 1, 31, "actor")                \
    F(U64, pid, 0, UINT32_MAX, "process")        \
    F(BOOL, draining, 0, 1, "takes nothing new") \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot; 0: not told")
/* everyone -> registrar: who I am; repeated every heartbeat. A client names its pin segment. */
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
    F(BOOL, disk, 0, 1, "there is a disk tier")
/* client, coordinator -> registrar */
#define SL_BODY_RESERVE(F, L)                                                              \
    F(BOOL, wait, 0, 1, "wait for space until the budget ends (busy is answered at once)") \
    F(U64, ttl_ns, 0, UINT64_MAX, "0: setting reservation_ttl")                            \
    L(items, want, SL_BATCH_MAX, "objects")                                                \
    L(groups, group, SL_BATCH_MAX, "blocks that the objects are parts of")
#define SL_BODY_RESERVE_REPLY(F, L) L(items, grant, SL_BATCH_MAX, "one for each object")
#define SL_BODY_COMMIT(F, L)                                                 \
    F(BOOL, tail_first, 0, 1,                                                \
      "the items are a chain, head first: the tail is the older one in LRU") \
    L(items, claim, SL_BATCH_MAX, "reservations whose bytes are in place")
#define SL_BODY_ABORT(F, L) L(items, claim, SL_BATCH_MAX, "reservations whose writer has stopped")
#define SL_BODY_CODES(F, L) F(U64S, codes, 0, SL_BATCH_MAX, "one sl_err for each item asked")
/* client -> registrar: values in extents that were granted ahead of use, and a wish for more */
#define SL_BODY_PUBLISH(F, L)                                                               \
    F(U64, ahead_count, 0, SL_BATCH_MAX, "extents wanted ahead of use; fewer may be given") \
    F(U64, ahead_bytes, 0, SL_VALUE_BYTES_MAX, "size of the values they are for")           \
    L(items, publication, SL_BATCH_MAX, "values whose bytes are in place")
#define SL_BODY_PUBLISH_REPLY(F, L)                                                           \
    F(U64S, codes, 0, SL_BATCH_MAX,                                                           \
      "one sl_err for each item; SL_OK and SL_ERR_STALE end its grant, others leave it open") \
    L(ahead, grant, SL_BATCH_MAX, "extents without a key: for PUBLISH alone")
#define SL_BODY_KEYS_ASKED(F, L) F(TEXTS, keys, 0, SL_BATCH_MAX, "object keys")
#define SL_BODY_REMOVE(F, L)                                                          \
    F(TEXTS, keys, 0, SL_BATCH_MAX, "object keys; a block key removes all its parts") \
    F(BOOL, all, 0, 1, "everything; keys is empty then")
#define SL_BODY_LOOKUP_REPLY(F, L) L(items, location, SL_BATCH_MAX, "one for each key")
#define SL_BODY_ENGINE(F, L)                                                        \
    F(U64, engine_id, 0, UINT64_MAX, "0 in a registration; never reused")           \
    F(U64, pid, 1, UINT32_MAX, "engine process: its death ends the registration")   \
    F(U64, start_time, 0, UINT64_MAX, "clock ticks since boot")                     \
    F(TEXT, name, 1, 63, "for people")                                              \
    F(TEXT, model, 32, 32, "model identity: 32 hex digits, first part of the keys") \
    F(TEXT, key_format, 1, 31, "as in sluicectl keys --format")                     \
    F(TEXT, seed, 0, 255, "seed of the key format")                                 \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                             \
    F(U64, world, 1, 64, "ranks")                                                   \
    L(pools, pool, 8, "pools of every rank")                                        \
    L(regions, region, 65536, "memory of every rank, pool and layer")
#define SL_BODY_ENGINE_ID(F, L) F(U64, engine_id, 1, UINT64_MAX, "engine")
/* registrar -> writer: stop touching these; answered when nothing is written on their behalf */
#define SL_BODY_FENCE(F, L)       \
    L(items, claim, SL_BATCH_MAX, \
      "claims that ended; empty: all of the op id; op id 0 too: all that the sender asked for")

/* anyone -> registrar: why is this a miss */
#define SL_BODY_EXPLAIN(F, L)       F(TEXTS, keys, 1, 64, "keys of objects, parts or blocks")
#define SL_BODY_EXPLAIN_REPLY(F, L) L(items, story, 64, "one for each key")

/* client -> coordinator */
#define SL_BODY_STORE(F, L)                                                                 \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                              \
    F(BIN, tokens, 4, SL_TOKENS_BYTES_MAX,                                                  \
      "token ids, u32 little-endian, from the start of the prompt")                         \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block] as in sluicectl keys; empty: none") \
    F(U64, first_block, 0, UINT32_MAX, "blocks before this one are not stored")             \
    F(BOOL, partial, 0, 1, "an incomplete last block counts")                               \
    F(U64S, device_blocks, 0, SL_BATCH_MAX,                                                 \
      "device block of every block from first_block on, the same on all ranks")
#define SL_BODY_STORE_REPLY(F, L)                                                          \
    F(U64, block_count, 0, UINT32_MAX, "blocks asked for")                                 \
    F(BIN, stored, 0, SL_BATCH_MAX, "bitmap, bit i & 7 of byte i >> 3: stored by this op") \
    F(BIN, existed, 0, SL_BATCH_MAX, "bitmap: was there already")                          \
    F(BOOL, fenced, 0, 1, "the device blocks are no longer lent")
#define SL_BODY_LOAD(F, L)                                                                 \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                                             \
    F(BIN, tokens, 4, SL_TOKENS_BYTES_MAX,                                                 \
      "token ids, u32 little-endian, from the start of the prompt")                        \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block]; empty: none")                     \
    F(U64, first_block, 0, UINT32_MAX, "blocks before this one are on the device already") \
    F(BOOL, partial, 0, 1, "an incomplete last block counts")                              \
    F(U64S, device_blocks, 0, SL_BATCH_MAX, "where to load every block from first_block on")
#define SL_BODY_LOAD_REPLY(F, L)                                    \
    F(U64, block_count, 0, UINT32_MAX,                              \
      "blocks loaded: the longest prefix all ranks and pools have") \
    F(U64, from_memory, 0, UINT32_MAX, "of these")                  \
    F(U64, from_disk, 0, UINT32_MAX, "of these")                    \
    F(U64, from_remote, 0, UINT32_MAX, "of these")                  \
    F(U64, bytes, 0, UINT64_MAX, "copied to the devices")           \
    F(BOOL, fenced, 0, 1, "the device blocks are no longer lent")
#define SL_BODY_OP(F, L) F(U64, target_op, 1, UINT64_MAX, "op id of the op meant")
#define SL_BODY_OP_REPLY(F, L) \
    F(BOOL, fenced, 0, 1, "nothing touches the op's device blocks any more")

#define SL_BODY_KEYS(F, L)                                                 \
    F(TEXT, format, 1, 31, "as in sluicectl keys --format")                \
    F(U64, block_tokens, 1, 65536, "tokens of a block")                    \
    F(BIN, tokens, 0, SL_TOKENS_BYTES_MAX, "token ids, u32 little-endian") \
    F(TEXT, extras, 0, 1048576, "JSON [[...] per block]; empty: none")     \
    F(TEXT, seed, 0, 255, "seed")                                          \
    F(TEXT, parent, 0, 255, "hex key of the block before; empty: none")    \
    F(BOOL, partial, 0, 1, "an incomplete last block gets a key where the format has one")
#define SL_BODY_KEYS_REPLY(F, L) F(TEXTS, keys, 0, SL_BATCH_MAX, "one for each block")

#define SL_BODY_COPY(F, L)                                              \
    F(U64, engine_id, 1, UINT64_MAX, "engine")                          \
    F(U64, rank, 0, 63, "rank")                                         \
    F(BOOL, out, 0, 1, "true: device to arena, false: arena to device") \
    L(items, piece, SL_BATCH_MAX, "parts")
#define SL_BODY_COPY_REPLY(F, L)                       \
    F(BIN, done, 0, SL_BATCH_MAX, "bitmap over items") \
    F(BIN, digests, 0, 1048576, "out: 16 bytes an item: low, high, u64 little-endian")

#define SL_BODY_DISK_WRITE(F, L)       L(items, spill, SL_BATCH_MAX, "values to make durable")
#define SL_BODY_DISK_WRITE_REPLY(F, L) L(items, spilled, SL_BATCH_MAX, "one for each value")
#define SL_BODY_DISK_READ(F, L) \
    L(items, fill, SL_BATCH_MAX, "values to bring in; digests are verified")
#define SL_BODY_DISK_FORGET(F, L) \
    L(items, forget, SL_BATCH_MAX, "removed for good: must not come back after a restart")
#define SL_BODY_DISK_FOUND(F, L)                                                       \
    F(BOOL, first, 0, 1, "a scan begins: what is not found by its end is not on disk") \
    F(BOOL, last, 0, 1, "the scan is over, the tier takes work")                       \
    L(items, found, SL_BATCH_MAX, "values on disk")                                    \
    F(BIN, store, 0, 16, "name of the disk, told with first; empty: it has none")
#define SL_BODY_DISK_RECLAIM(F, L) \
    F(U64, segment, 0, UINT32_MAX, "its values leave the disk: forget their places")
#define SL_BODY_REGIONS_REPLY(F, L)                           \
    F(U64, region_bytes_max, 0, UINT64_MAX, "limit in force") \
    L(chunks, chunk, 65536, "planned memory regions")
/* client, coordinator -> transporter: bring values that other nodes hold into memory */
#define SL_BODY_FETCH(F, L)                                                                       \
    F(BOOL, chain, 0, 1,                                                                          \
      "the items are a chain of blocks, head first: none is wanted behind one that is not found") \
    L(items, asked, SL_BATCH_MAX, "objects, and all parts of every block")                        \
    L(groups, group, SL_BATCH_MAX, "blocks that the items are parts of")
/* Between transporters of two nodes. What else comes from a peer is refused. */
#define SL_BODY_PEER_HELLO(F, L)                                                \
    F(TEXT, node, 1, 31, "the sender, as its key is called at the receiver")    \
    F(U64, incarnation, 1, UINT64_MAX, "of the sender: grows with every start") \
    F(TEXT, fabric, 0, 15, "what carries its bytes")                            \
    F(BIN, address, 0, 65536, "of its fabric, for the receiver")
#define SL_BODY_PEER_HELLO_REPLY(F, L)                                          \
    F(TEXT, node, 1, 31, "the sender")                                          \
    F(U64, incarnation, 1, UINT64_MAX, "of the sender: grows with every start") \
    F(TEXT, fabric, 0, 15, "what carries its bytes")                            \
    F(BIN, address, 0, 65536, "of its fabric, for the receiver")                \
    L(windows, window, 64, "arenas that the receiver may read")
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

/* X(NAME, body, number, TABLE, help) makes SL_MSG_NAME and struct sl_body_BODY. */
#define SL_MSG_TABLE(X)                                                                            \
    X(PING, ping, 2, SL_BODY_EMPTY, "are you there")                                               \
    X(PONG, pong, 3, SL_BODY_PONG, "yes")                                                          \
    X(DRAIN, drain, 4, SL_BODY_EMPTY, "finish and exit")                                           \
    X(DRAIN_REPLY, drain_reply, 5, SL_BODY_EMPTY, "will do")                                       \
    X(HELLO, hello, 10, SL_BODY_HELLO, "who is there")                                             \
    X(HELLO_REPLY, hello_reply, 11, SL_BODY_HELLO_REPLY, "known")                                  \
    X(RESERVE, reserve, 12, SL_BODY_RESERVE, "room for objects to be written")                     \
    X(RESERVE_REPLY, reserve_reply, 13, SL_BODY_RESERVE_REPLY, "grants")                           \
    X(COMMIT, commit, 14, SL_BODY_COMMIT, "make visible")                                          \
    X(COMMIT_REPLY, commit_reply, 15, SL_BODY_CODES, "done")                                       \
    X(ABORT, abort, 16, SL_BODY_ABORT, "give reservations back")                                   \
    X(ABORT_REPLY, abort_reply, 17, SL_BODY_CODES, "done")                                         \
    X(REMOVE, remove, 18, SL_BODY_REMOVE, "remove objects for good")                               \
    X(REMOVE_REPLY, remove_reply, 19, SL_BODY_CODES, "done")                                       \
    X(PROMOTE, promote, 20, SL_BODY_KEYS_ASKED, "bring objects into memory")                       \
    X(PROMOTE_REPLY, promote_reply, 21, SL_BODY_CODES, "SL_OK: was in memory a moment ago")        \
    X(LOOKUP, lookup, 22, SL_BODY_KEYS_ASKED, "for a reader whose own look-up stayed busy")        \
    X(LOOKUP_REPLY, lookup_reply, 23, SL_BODY_LOOKUP_REPLY, "places")                              \
    X(FLUSH, flush, 24, SL_BODY_EMPTY, "answered when all that was committed is durable")          \
    X(FLUSH_REPLY, flush_reply, 25, SL_BODY_EMPTY, "durable")                                      \
    X(PUBLISH, publish, 26, SL_BODY_PUBLISH, "make values in extents granted ahead visible")       \
    X(PUBLISH_REPLY, publish_reply, 27, SL_BODY_PUBLISH_REPLY, "done, and more extents")           \
    X(EXPLAIN, explain, 28, SL_BODY_EXPLAIN, "why objects are not here")                           \
    X(EXPLAIN_REPLY, explain_reply, 29, SL_BODY_EXPLAIN_REPLY, "what is known of each")            \
    X(ENGINE_REGISTER, engine_register, 30, SL_BODY_ENGINE, "an engine and its pools")             \
    X(ENGINE_REGISTER_REPLY, engine_register_reply, 31, SL_BODY_ENGINE_ID, "registered")           \
    X(ENGINE_GET, engine_get, 32, SL_BODY_ENGINE_ID, "what was registered")                        \
    X(ENGINE_GET_REPLY, engine_get_reply, 33, SL_BODY_ENGINE, "registration")                      \
    X(ENGINE_END, engine_end, 34, SL_BODY_ENGINE_ID, "registration ends")                          \
    X(ENGINE_END_REPLY, engine_end_reply, 35, SL_BODY_EMPTY, "ended")                              \
    X(FENCE, fence, 36, SL_BODY_FENCE, "stop writing on behalf of claims or of an op")             \
    X(FENCE_REPLY, fence_reply, 37, SL_BODY_EMPTY, "nothing writes or reads there any more")       \
    X(STORE, store, 40, SL_BODY_STORE, "store blocks from the device")                             \
    X(STORE_REPLY, store_reply, 41, SL_BODY_STORE_REPLY, "stored")                                 \
    X(LOAD, load, 42, SL_BODY_LOAD, "load the longest prefix to the device")                       \
    X(LOAD_REPLY, load_reply, 43, SL_BODY_LOAD_REPLY, "loaded")                                    \
    X(CANCEL, cancel, 44, SL_BODY_OP, "end an op early")                                           \
    X(CANCEL_REPLY, cancel_reply, 45, SL_BODY_OP_REPLY, "ended, or was not there")                 \
    X(OP_FENCED, op_fenced, 46, SL_BODY_OP, "answered when the op's device blocks are free")       \
    X(OP_FENCED_REPLY, op_fenced_reply, 47, SL_BODY_OP_REPLY, "free")                              \
    X(KEYS, keys, 50, SL_BODY_KEYS, "keys of a token sequence")                                    \
    X(KEYS_REPLY, keys_reply, 51, SL_BODY_KEYS_REPLY, "keys")                                      \
    X(COPY, copy, 60, SL_BODY_COPY, "parts between device and arena")                              \
    X(COPY_REPLY, copy_reply, 61, SL_BODY_COPY_REPLY, "copied")                                    \
    X(DISK_WRITE, disk_write, 70, SL_BODY_DISK_WRITE, "write behind")                              \
    X(DISK_WRITE_REPLY, disk_write_reply, 71, SL_BODY_DISK_WRITE_REPLY, "durable")                 \
    X(DISK_READ, disk_read, 72, SL_BODY_DISK_READ, "read into extents")                            \
    X(DISK_READ_REPLY, disk_read_reply, 73, SL_BODY_CODES, "read and verified")                    \
    X(DISK_FORGET, disk_forget, 74, SL_BODY_DISK_FORGET, "tombstones")                             \
    X(DISK_FORGET_REPLY, disk_forget_reply, 75, SL_BODY_CODES, "durable")                          \
    X(DISK_FOUND, disk_found, 76, SL_BODY_DISK_FOUND, "tierer to registrar: what a start found")   \
    X(DISK_FOUND_REPLY, disk_found_reply, 77, SL_BODY_CODES,                                       \
      "SL_OK known, SL_ERR_NOT_FOUND unwanted")                                                    \
    X(DISK_RECLAIM, disk_reclaim, 78, SL_BODY_DISK_RECLAIM, "tierer to registrar: a segment goes") \
    X(DISK_RECLAIM_REPLY, disk_reclaim_reply, 79, SL_BODY_EMPTY, "no entry points there any more") \
    X(REGIONS, regions, 80, SL_BODY_EMPTY, "the transporter's plan of memory regions")             \
    X(REGIONS_REPLY, regions_reply, 81, SL_BODY_REGIONS_REPLY, "plan")                             \
    X(FETCH, fetch, 82, SL_BODY_FETCH, "bring in what other nodes hold")                           \
    X(FETCH_REPLY, fetch_reply, 83, SL_BODY_CODES,                                                 \
      "SL_OK: it came; SL_ERR_EXISTS: it was here, on disk perhaps")                               \
    X(NODES, nodes, 84, SL_BODY_EMPTY, "the transporter's peers")                                  \
    X(NODES_REPLY, nodes_reply, 85, SL_BODY_NODES_REPLY, "peers")                                  \
    X(PEER_HELLO, peer_hello, 90, SL_BODY_PEER_HELLO, "one node greets another")                   \
    X(PEER_HELLO_REPLY, peer_hello_reply, 91, SL_BODY_PEER_HELLO_REPLY, "what it may read")        \
    X(PEER_PIN, peer_pin, 92, SL_BODY_PEER_PIN, "keep these for me to read")                       \
    X(PEER_PIN_REPLY, peer_pin_reply, 93, SL_BODY_PEER_PIN_REPLY, "where they are")                \
    X(PEER_UNPIN, peer_unpin, 94, SL_BODY_PEER_UNPIN, "I have read them")                          \
    X(PEER_UNPIN_REPLY, peer_unpin_reply, 95, SL_BODY_EMPTY, "done")                               \
    X(LOCAL_IO, local_io, 1000, SL_BODY_LOCAL_IO, "a disk request ended")                          \
    X(LOCAL_DIED, local_died, 1002, SL_BODY_LOCAL_DIED, "a watched process is gone")               \
    X(LOCAL_JOB, local_job, 1004, SL_BODY_LOCAL_JOB, "a job ended")

#endif
