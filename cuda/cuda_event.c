/* cuda/cuda_event.c - events of other processes: opens their IPC handles and queries them.
 *
 * Our streams do not wait for these events. Work of an engine may take seconds, or never end, and a
 * stream that waits for it would block the copies of all others, and the swapper. Work submitted
 * after cuEventQuery found an event ended is ordered after it. */
#include "cuda/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 8u /* shown of a handle */

/* An error that concerns only this event does not end the swapper. */
static sl_err event_failed(struct cuda_device *cuda, sl_cu_result result,
                           const unsigned char *handle, const char *doing, struct sl_error *why)
{
    char name[2 * NAME_BYTES + 1];
    struct sl_error reason = {0};
    if (result == 0) {
        return SL_OK;
    }
    for (uint32_t i = 0; i < NAME_BYTES; i++) {
        (void)snprintf(name + (size_t)2 * i, 3, "%02x", handle[i]);
    }
    char what[64];
    (void)snprintf(what, sizeof(what), "%s the engine's event %s...", doing, name);
    sl_err err = cuda_fail_foreign(cuda, &reason, result, what);
    err = err == SL_ERR_DEVICE ? err : SL_ERR_INVALID;
    (void)sl_fail(why, err, "%s", reason.text);
    if (why != NULL) {
        why->os_code = result;
    }
    return err;
}

struct cuda_event {
    sl_cu_event event;
    unsigned char name[NAME_BYTES];
};

sl_err cuda_event_open(struct sl_device *device, const unsigned char handle[64], void **out,
                       struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    struct sl_cu_ipc ipc;
    struct cuda_event *event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for an event");
    }
    memcpy(ipc.bytes, handle, sizeof(ipc.bytes));
    memcpy(event->name, handle, sizeof(event->name));
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) {
        err = event_failed(cuda, cuda->driver.event_ipc_open(&event->event, ipc), handle, "open",
                           why);
    }
    if (err != SL_OK) {
        free(event);
        return err;
    }
    *out = event;
    return SL_OK;
}

sl_err cuda_event_ended(struct sl_device *device, void *opened, bool *over, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct cuda_event *event = opened;
    sl_err err = cuda_enter(cuda, why);
    if (err != SL_OK) {
        return err;
    }
    sl_cu_result result = cuda->driver.event_query(event->event);
    *over = result == 0;
    return result == SL_CU_NOT_READY ? SL_OK
                                     : event_failed(cuda, result, event->name, "ask for", why);
}

void cuda_event_close(struct sl_device *device, void *opened)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_event *event = opened;
    (void)cuda_enter(cuda, NULL);
    (void)cuda->driver.event_destroy(event->event);
    free(event);
}
