/* tests/support/fake_cuda_capture.c - the fake driver's graph captures, as cuda.h describes them at
 * cuThreadExchangeStreamCaptureMode: a call that may be unsafe fails and invalidates each capture
 * that forbids it. CUDA documents only examples of such calls; here all calls are unsafe that do
 * more than enqueue work or query constants. */
#include "tests/support/fake_cuda_internal.h"

#include <pthread.h>
#include <string.h>

struct capture {
    const struct stream *stream; /* NULL: unused */
    int mode;
    pthread_t thread;
    bool spoilt;
};
static struct capture captures[8];
static size_t capture_count;
static _Thread_local int thread_mode = SL_CU_CAPTURE_GLOBAL;

static const char *const safe[] = {
    "fake_init",
    "fake_version",
    "fake_device_count",
    "fake_device_get",
    "fake_device_name",
    "fake_device_uuid",
    "fake_device_attribute",
    "fake_context_set",
    "fake_context_push",
    "fake_context_pop",
    "fake_pointer_attribute",
    "fake_priorities",
    "fake_module_function",
    "fake_launch",
    "fake_memory_range",
    "fake_to_device",
    "fake_to_host",
    "fake_fill",
    "fake_copy_batch",
    "fake_copy_batch_12",
    "fake_event_record",
    "fake_capture_mode",
    "fake_granularity",
    "fake_begin_capture",
    "fake_end_capture",
};

static bool is_safe(const char *symbol)
{
    for (size_t i = 0; i < SL_COUNT(safe); i++) {
        if (strcmp(safe[i], symbol) == 0) {
            return true;
        }
    }
    return false;
}

static bool forbids(const struct capture *capture)
{
    bool own = pthread_equal(capture->thread, pthread_self()) != 0;
    bool relaxed = capture->mode == SL_CU_CAPTURE_RELAXED;
    switch (thread_mode) {
    case SL_CU_CAPTURE_GLOBAL:
        return own ? !relaxed : capture->mode == SL_CU_CAPTURE_GLOBAL;
    case SL_CU_CAPTURE_THREAD:
        return own && !relaxed;
    default:
        return false;
    }
}

sl_cu_result fake_capture_check(const char *symbol)
{
    sl_cu_result result = 0;
    if (capture_count == 0 || is_safe(symbol)) {
        return 0;
    }
    for (size_t i = 0; i < SL_COUNT(captures); i++) {
        if (captures[i].stream != NULL && forbids(&captures[i])) {
            captures[i].spoilt = true;
            result = SL_CU_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

static struct capture *capture_of(const struct stream *stream)
{
    for (size_t i = 0; i < SL_COUNT(captures); i++) {
        if (captures[i].stream == stream) {
            return &captures[i];
        }
    }
    return NULL;
}

bool fake_captured(const struct stream *stream)
{
    return capture_count > 0 && stream != NULL && capture_of(stream) != NULL;
}

sl_cu_result fake_capture_mode(int *mode)
{
    TAKES();
    int before = thread_mode;
    if (*mode < SL_CU_CAPTURE_GLOBAL || *mode > SL_CU_CAPTURE_RELAXED) {
        return SL_CU_INVALID_VALUE;
    }
    thread_mode = *mode;
    *mode = before;
    return 0;
}

/* ---- calls that engines make ---- */

EXPORT sl_cu_result fake_begin_capture(sl_cu_stream stream,
                                       int mode) __asm__("cuStreamBeginCapture_v2");
EXPORT sl_cu_result fake_end_capture(sl_cu_stream stream,
                                     void **graph) __asm__("cuStreamEndCapture");

sl_cu_result fake_begin_capture(sl_cu_stream stream, int mode)
{
    TAKES();
    struct capture *capture = capture_of(NULL);
    if (stream == NULL || fake_captured(stream) || capture == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    *capture = (struct capture){.stream = stream, .mode = mode, .thread = pthread_self()};
    capture_count++;
    return 0;
}

sl_cu_result fake_end_capture(sl_cu_stream stream, void **graph)
{
    TAKES();
    struct capture *capture = stream == NULL ? NULL : capture_of(stream);
    if (capture == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    bool spoilt = capture->spoilt;
    *capture = (struct capture){0};
    capture_count--;
    *graph = spoilt ? NULL : &fake_state;
    return spoilt ? SL_CU_CAPTURE_INVALIDATED : 0;
}
