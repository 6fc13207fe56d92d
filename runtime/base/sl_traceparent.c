/* runtime/base/sl_traceparent.c - W3C trace context as text and as an event of a flight recorder.
 *
 * An event has texts of 23 and 15 characters, which people may see. So the 25 bytes are written
 * with 6 bits per character: a mark and the trace id in one, span id and flags in the other. */
#include "runtime/base/sl_traceparent.h"
#include "runtime/base/sl_hex.h"

#include <ctype.h>
#include <string.h>

#define TRACE_AT      3u
#define SPAN_AT       36u
#define FLAGS_AT      53u
#define MARK          '^'
#define TRACE_LETTERS 22u /* 128 bits */
#define SPAN_LETTERS  12u /* 72 bits: the flags are the last byte */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Accepts lower-case digits only, as the standard requires. */
static bool hex_take(const char *text, unsigned char *out, size_t count)
{
    for (size_t i = 0; i < 2 * count; i++) {
        if (isupper((unsigned char)text[i])) {
            return false;
        }
    }
    return sl_hex_read(out, text, count) == 2 * count;
}

static bool any(const unsigned char *bytes, size_t count)
{
    unsigned all = 0;
    for (size_t i = 0; i < count; i++) {
        all |= bytes[i];
    }
    return all != 0;
}

bool sl_traceparent_parse(const char *text, uint64_t length, struct sl_traceparent *out)
{
    unsigned char version = 0;
    struct sl_traceparent found;
    if (length < SL_TRACEPARENT_BYTES || text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' ||
        text[FLAGS_AT - 1] != '-' || !hex_take(text, &version, 1) ||
        !hex_take(&text[TRACE_AT], found.trace, sizeof found.trace) ||
        !hex_take(&text[SPAN_AT], found.span, sizeof found.span) ||
        !hex_take(&text[FLAGS_AT], &found.flags, 1)) {
        return false;
    }
    bool whole =
        length == SL_TRACEPARENT_BYTES || (version != 0 && text[SL_TRACEPARENT_BYTES] == '-');
    if (!whole || version == UINT8_MAX || !any(found.trace, sizeof found.trace) ||
        !any(found.span, sizeof found.span)) {
        return false;
    }
    *out = found;
    return true;
}

void sl_traceparent_text(const struct sl_traceparent *of, char out[SL_TRACEPARENT_BYTES + 1])
{
    memcpy(out, "00-", TRACE_AT);
    sl_hex_write(&out[TRACE_AT], of->trace, sizeof of->trace);
    out[SPAN_AT - 1] = '-';
    sl_hex_write(&out[SPAN_AT], of->span, sizeof of->span);
    out[FLAGS_AT - 1] = '-';
    sl_hex_write(&out[FLAGS_AT], &of->flags, 1);
    out[SL_TRACEPARENT_BYTES] = '\0';
}

static void letters_write(const unsigned char *bytes, size_t byte_count, char *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned value = 0;
        for (size_t bit = 6 * i; bit < 6 * i + 6; bit++) {
            unsigned byte = bit / 8 < byte_count ? bytes[bit / 8] : 0;
            unsigned one = byte >> (7 - bit % 8) & 1u;
            value = value << 1 | one;
        }
        out[i] = letters[value];
    }
    out[count] = '\0';
}

static bool letters_read(const char *text, size_t count, unsigned char *bytes, size_t byte_count)
{
    memset(bytes, 0, byte_count);
    for (size_t i = 0; i < count; i++) {
        const char *letter = text[i] == '\0' ? NULL : strchr(letters, text[i]);
        if (letter == NULL) {
            return false;
        }
        unsigned value = (unsigned)(letter - letters);
        for (size_t bit = 6 * i; bit < 6 * i + 6 && bit / 8 < byte_count; bit++) {
            unsigned one = value >> (5 - bit % 6) & 1u;
            bytes[bit / 8] = (unsigned char)(bytes[bit / 8] | one << (7 - bit % 8));
        }
    }
    return true;
}

void sl_traceparent_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                          const struct sl_traceparent *of)
{
    char what[TRACE_LETTERS + 2] = {MARK};
    char peer[SPAN_LETTERS + 1];
    unsigned char tail[sizeof of->span + 1];
    memcpy(tail, of->span, sizeof of->span);
    tail[sizeof of->span] = of->flags;
    letters_write(of->trace, sizeof of->trace, &what[1], TRACE_LETTERS);
    letters_write(tail, sizeof tail, peer, SPAN_LETTERS);
    sl_trace_event(metrics, now_ns, trace_id, what, peer, 0);
}

bool sl_traceparent_of(const struct sl_trace_record *event, struct sl_traceparent *out)
{
    unsigned char tail[sizeof out->span + 1];
    if (event->what[0] != MARK ||
        !letters_read(&event->what[1], TRACE_LETTERS, out->trace, sizeof out->trace) ||
        !letters_read(event->peer, SPAN_LETTERS, tail, sizeof tail)) {
        return false;
    }
    memcpy(out->span, tail, sizeof out->span);
    out->flags = tail[sizeof out->span];
    return any(out->trace, sizeof out->trace) && any(out->span, sizeof out->span);
}
