/* runtime/base/sl_traceparent.h - the place of an op in its caller's trace: the header
 * `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/), and its event in a
 * flight recorder.
 *
 * Text: VERSION-TRACE-SPAN-FLAGS in lower-case hex digits, of 1, 16, 8 and 1 bytes. Pure functions.
 */
#ifndef SL_TRACEPARENT_H
#define SL_TRACEPARENT_H

#include "runtime/base/sl_metrics.h"

#define SL_TRACEPARENT_BYTES 55u /* of the text, version 00 */
struct sl_traceparent {
    unsigned char trace[16]; /* not all 0 */
    unsigned char span[8];   /* of the caller: the op's parent; not all 0 */
    unsigned char flags;     /* bit 0: sampled */
};
/* False: it is none. A later version may have more behind the flags, which is left out. */
bool sl_traceparent_parse(const char *text, uint64_t length, struct sl_traceparent *out);
void sl_traceparent_text(const struct sl_traceparent *of, char out[SL_TRACEPARENT_BYTES + 1]);

/* Notes that the op `trace_id` is below it. */
void sl_traceparent_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                          const struct sl_traceparent *of);
/* False: the event is another. */
bool sl_traceparent_of(const struct sl_trace_record *event, struct sl_traceparent *out);

#endif
