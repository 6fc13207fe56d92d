/* tests/support/fake_cuda_wait.c - the fake driver's queries, and a device that hangs. */
#include "tests/support/fake_cuda_internal.h"

#include <unistd.h>

void fake_hang(void)
{
    while (fake_state.hangs) { /* other threads continue meanwhile */
        fake_unlock(NULL);
        (void)usleep(1000);
        fake_lock();
    }
}

/* Whether this query finds the work unfinished. Work makes progress without a waiting thread. */
static bool still_busy(void)
{
    fake_state.queries++;
    if (fake_state.hangs) {
        return true;
    }
    if (fake_state.busy_queries > 0) {
        fake_state.busy_queries--;
        return true;
    }
    return false;
}

sl_cu_result fake_stream_query(sl_cu_stream at)
{
    TAKES();
    struct stream *stream = at;
    if (!fake_stream_done(stream, fake_stream_end(stream)) && still_busy()) {
        return SL_CU_NOT_READY;
    }
    fake_stream_run(stream, fake_stream_end(stream));
    return 0;
}

/* A kernel, unlike a copy, waits until no other process computes. */
static bool kernel_waits(const struct event *event)
{
    const struct stream *stream = event->stream;
    bool kernel = false;
    for (size_t i = stream->begun; stream->dropped + i < event->upto; i++) {
        kernel |= stream->ops[i].kind != COPY && stream->ops[i].kind != FILL;
    }
    return kernel && event->queries < fake_state.kernel_queries;
}

sl_cu_result fake_event_query(sl_cu_event at)
{
    TAKES();
    struct event *event = at;
    if (event->imported) {
        fake_state.queries++;
        return fake_event_imported_over(event) ? 0 : SL_CU_NOT_READY;
    }
    if (event->stream == NULL) { /* never recorded, or found done before */
        return 0;
    }
    if (!fake_stream_done(event->stream, event->upto) &&
        (still_busy() || event->queries < fake_state.event_queries || kernel_waits(event))) {
        event->queries++;
        return SL_CU_NOT_READY;
    }
    fake_stream_run(event->stream, event->upto);
    event->stream = NULL;
    return 0;
}
