/* ipc/sl_codec_scan.c - looks a frame over before anything is allocated for it. */
#include "ipc/msg_internal.h"

#include <inttypes.h>

struct scan {
    const unsigned char *at;
    const unsigned char *end;
    uint64_t element_count;
    uint64_t open[SL_DEPTH_MAX]; /* elements that the open containers still want */
    uint32_t depth;
};

static uint64_t scan_left(const struct scan *scan)
{
    return (uint64_t)(scan->end - scan->at);
}

/* Big-endian integer of width bytes after the head byte. */
static sl_err scan_number(struct scan *scan, uint32_t width, uint64_t *out, struct sl_error *why)
{
    if (scan_left(scan) < width) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame ends in the middle of a header");
    }
    *out = 0;
    for (uint32_t i = 0; i < width; i++) {
        *out = (*out << 8) | *scan->at++;
    }
    return SL_OK;
}

static sl_err scan_skip(struct scan *scan, uint64_t length_bytes, struct sl_error *why)
{
    if (length_bytes > scan_left(scan)) {
        return sl_fail(why, SL_ERR_PROTOCOL,
                       "frame claims %" PRIu64 " bytes where %" PRIu64 " are left", length_bytes,
                       scan_left(scan));
    }
    scan->at += length_bytes;
    return SL_OK;
}

static sl_err scan_open(struct scan *scan, uint64_t count, uint64_t elements_each,
                        struct sl_error *why)
{
    /* Every element takes a byte at least; counts are at most 2^32, so the product fits. */
    if (count * elements_each > scan_left(scan)) {
        return sl_fail(why, SL_ERR_PROTOCOL,
                       "frame claims %" PRIu64 " elements where %" PRIu64 " bytes are left",
                       count * elements_each, scan_left(scan));
    }
    if (count == 0) {
        return SL_OK;
    }
    if (scan->depth == SL_DEPTH_MAX) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame is nested deeper than %u", SL_DEPTH_MAX);
    }
    scan->open[scan->depth++] = count * elements_each;
    return SL_OK;
}

enum scan_form {
    FORM_PLAIN,  /* `width` bytes of payload */
    FORM_LENGTH, /* length in `width` bytes, then `extra` and so many bytes */
    FORM_ARRAY,  /* count in `width` bytes */
    FORM_MAP,
    FORM_BAD,
};
struct scan_head {
    unsigned char form, width, extra;
};
/* Heads 0xc0..0xdf of the msgpack specification. */
static const struct scan_head heads[32] = {
    {FORM_PLAIN, 0, 0},  {FORM_BAD, 0, 0},    {FORM_PLAIN, 0, 0},  {FORM_PLAIN, 0, 0},
    {FORM_LENGTH, 1, 0}, {FORM_LENGTH, 2, 0}, {FORM_LENGTH, 4, 0}, {FORM_LENGTH, 1, 1},
    {FORM_LENGTH, 2, 1}, {FORM_LENGTH, 4, 1}, {FORM_PLAIN, 4, 0},  {FORM_PLAIN, 8, 0},
    {FORM_PLAIN, 1, 0},  {FORM_PLAIN, 2, 0},  {FORM_PLAIN, 4, 0},  {FORM_PLAIN, 8, 0},
    {FORM_PLAIN, 1, 0},  {FORM_PLAIN, 2, 0},  {FORM_PLAIN, 4, 0},  {FORM_PLAIN, 8, 0},
    {FORM_PLAIN, 2, 0},  {FORM_PLAIN, 3, 0},  {FORM_PLAIN, 5, 0},  {FORM_PLAIN, 9, 0},
    {FORM_PLAIN, 17, 0}, {FORM_LENGTH, 1, 0}, {FORM_LENGTH, 2, 0}, {FORM_LENGTH, 4, 0},
    {FORM_ARRAY, 2, 0},  {FORM_ARRAY, 4, 0},  {FORM_MAP, 2, 0},    {FORM_MAP, 4, 0},
};

static sl_err scan_long_head(struct scan *scan, unsigned char head, struct sl_error *why)
{
    const struct scan_head *rule = &heads[head - 0xc0];
    if (rule->form == FORM_BAD) {
        return sl_fail(why, SL_ERR_PROTOCOL,
                       "frame holds the byte 0xc1, which msgpack does not use");
    }
    if (rule->form == FORM_PLAIN) {
        return scan_skip(scan, rule->width, why);
    }
    uint64_t number = 0;
    sl_err err = scan_number(scan, rule->width, &number, why);
    if (err != SL_OK) {
        return err;
    }
    if (rule->form == FORM_LENGTH) {
        return scan_skip(scan, number + rule->extra, why);
    }
    return scan_open(scan, number, rule->form == FORM_MAP ? 2 : 1, why);
}

static sl_err scan_value(struct scan *scan, struct sl_error *why)
{
    if (scan->at == scan->end) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame ends where a value is due");
    }
    if (scan->element_count == SL_ELEMENTS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "frame has more than %u elements", SL_ELEMENTS_MAX);
    }
    scan->element_count++;
    unsigned char head = *scan->at++;
    if (head >= 0xc0 && head <= 0xdf) {
        return scan_long_head(scan, head, why);
    }
    if (head >= 0xa0 && head <= 0xbf) {
        return scan_skip(scan, head & 0x1f, why);
    }
    if (head >= 0x90 && head <= 0x9f) {
        return scan_open(scan, head & 0x0f, 1, why);
    }
    if (head >= 0x80 && head <= 0x8f) {
        return scan_open(scan, head & 0x0f, 2, why);
    }
    return SL_OK; /* a small integer */
}

sl_err sl_codec_scan(const void *frame, size_t length_bytes, uint64_t *element_count,
                     struct sl_error *why)
{
    struct scan scan = {.at = frame, .end = (const unsigned char *)frame + length_bytes};
    do {
        while (scan.depth > 0 && scan.open[scan.depth - 1] == 0) {
            scan.depth--;
        }
        if (scan.depth == 0 && scan.element_count > 0) {
            break;
        }
        if (scan.depth > 0) {
            scan.open[scan.depth - 1]--;
        }
        sl_err err = scan_value(&scan, why);
        if (err != SL_OK) {
            return err;
        }
    } while (true);
    if (scan.at != scan.end) {
        return sl_fail(why, SL_ERR_PROTOCOL, "frame has %" PRIu64 " bytes after its end",
                       scan_left(&scan));
    }
    *element_count = scan.element_count;
    return SL_OK;
}
