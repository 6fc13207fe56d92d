/* actors/transporter/push/bytes.c - bytes of a part on this node, wherever they lie: in an extent of
 * an arena, or in an engine's pool. For the CPU; nothing is kept over a turn. */
#include "actors/transporter/push/internal.h"

#include "runtime/sl_copy.h"

struct push_walk {
    bool of_pool;
    struct tr_spot_walk spots;
    unsigned char *at;
    uint64_t length_bytes; /* of the run */
};

static sl_err walk_begin(struct push *push, const struct push_where *where, struct tr_range range,
                         struct push_walk *out, struct sl_error *why)
{
    *out = (struct push_walk){.of_pool = where->spot != NULL};
    if (out->of_pool) {
        return tr_spot_walk_begin(push->self, where->spot, range, &out->spots, why);
    }
    out->at = push_at(push, where->arena, where->offset_bytes + range.offset_bytes,
                      range.length_bytes, why);
    out->length_bytes = range.length_bytes;
    return out->at != NULL ? SL_OK : why->code;
}

/* What is next of it, at most so much. False: the range is over. */
static bool walk_next(struct push_walk *walk, uint64_t bytes_max, unsigned char **at,
                      uint64_t *length_bytes)
{
    if (walk->length_bytes == 0 &&
        (!walk->of_pool || !tr_spot_walk_next(&walk->spots, &walk->at, &walk->length_bytes))) {
        return false;
    }
    *at = walk->at;
    *length_bytes = SL_MIN(walk->length_bytes, bytes_max);
    walk->at += *length_bytes;
    walk->length_bytes -= *length_bytes;
    return true;
}

sl_err push_bytes_digest(struct push *push, const struct push_where *where, struct tr_range range,
                         struct sl_digest_stream *stream, struct sl_error *why)
{
    struct push_walk walk;
    unsigned char *at;
    uint64_t length_bytes;
    sl_err err = walk_begin(push, where, range, &walk, why);
    while (err == SL_OK && walk_next(&walk, UINT64_MAX, &at, &length_bytes)) {
        sl_digest_feed(stream, at, length_bytes);
    }
    return err;
}

sl_err push_bytes_copy(struct push *push, const struct push_where *to, struct tr_range to_range,
                       const struct push_where *from, uint64_t from_offset_bytes,
                       struct sl_error *why)
{
    struct push_walk target, source;
    unsigned char *at, *of;
    uint64_t run_bytes, length_bytes;
    struct tr_range from_range = {.offset_bytes = from_offset_bytes,
                                  .length_bytes = to_range.length_bytes};
    sl_err err = walk_begin(push, to, to_range, &target, why);
    err = err == SL_OK ? walk_begin(push, from, from_range, &source, why) : err;
    while (err == SL_OK && walk_next(&target, UINT64_MAX, &at, &run_bytes)) {
        for (; run_bytes > 0; at += length_bytes, run_bytes -= length_bytes) {
            bool more = walk_next(&source, run_bytes, &of, &length_bytes);
            SL_ASSERT(more); /* both are as long */
            sl_copy(at, of, length_bytes);
        }
    }
    return err;
}
