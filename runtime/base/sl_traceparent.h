/* runtime/base/sl_traceparent.h - the header `traceparent` of W3C Trace Context
 * (https://www.w3.org/TR/trace-context/), which links an op to its caller's trace, and its event in
 * a flight recorder.
 *
 * Text: VERSION-TRACE-SPAN-FLAGS in lower-case hex digits, of 1, 16, 8 and 1 bytes. Pure
 * functions. */
#ifndef SL_TRACEPARENT_H
#define SL_TRACEPARENT_H

#include "runtime/base/sl_metrics.h"

#define SL_TRACEPARENT_BYTES 55u /* of the text, version 00 */
struct sl_traceparent {
    unsigned char trace[16]; /* not all 0 */
    unsigned char span[8];   /* the caller's span, parent of the op; not all 0 */
    unsigned char flags;     /* bit 0: sampled */
};
/* False: the text is not valid. Fields that a later version adds after the flags are ignored. */
bool sl_traceparent_parse(const char *text, uint64_t length, struct sl_traceparent *out);
void sl_traceparent_text(const struct sl_traceparent *of, char out[SL_TRACEPARENT_BYTES + 1]);

/* Records that the op `trace_id` belongs to this trace context. */
void sl_traceparent_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                          const struct sl_traceparent *of);
/* Reads the context from an event; false: the event is of another kind. */
bool sl_traceparent_of(const struct sl_trace_record *event, struct sl_traceparent *out);

#endif
