/* tests/support/fake_cuda_internal.h - declarations shared by the sources of the fake driver. */
#ifndef FAKE_CUDA_INTERNAL_H
#define FAKE_CUDA_INTERNAL_H

#include "cuda/driver.h"
#include "cuda/sl_kernels.h"
#include "tests/support/fake_cuda.h"

#include <stddef.h>

#define RANGES_MAX 4096u

enum range_kind { FREE, DEVICE, DEVICE_SHARED, DEVICE_IPC, RESERVED, MAPPED, HOST, REGISTERED };
struct range {
    enum range_kind kind;
    uintptr_t at;
    size_t length;
    int fd;
    unsigned opens;          /* of DEVICE_IPC */
    unsigned long long id;   /* unlike that of any earlier range */
    bool pooled;             /* from a stream-ordered pool */
    struct physical *memory; /* of MAPPED */
};
struct op {
    enum { COPY, FILL, SWAP_OUT, SWAP_IN, HASH, HASH_RUNS, EVENT } kind;
    uintptr_t to, from;
    size_t length;
    uint64_t workers;
    struct sl_hash_job job; /* a kernel's job; for SWAP_* only its swap is used */
};
struct stream {
    struct stream *next; /* links the streams that exist */
    struct op *ops;
    size_t count, capacity, begun;
    uint64_t dropped; /* operations before the first of `ops` */
};
struct event {
    struct event *next;           /* links the events that exist */
    struct stream *stream;        /* NULL: not recorded, or waited for */
    uint64_t upto;                /* the stream's end when the event was recorded */
    uint64_t queries;             /* since the record */
    struct fake_event_page *page; /* NULL: only this process uses it */
    bool imported;
};

/* fake_cuda.c */
extern struct fake_cuda fake_state;
extern _Thread_local bool fake_current; /* this thread has a current context */
/* Guards all state here: recursive, held by every call. */
void fake_lock(void);
void fake_unlock(const int *unused);
/* Counts the call. Returns the error to inject, or success. */
sl_cu_result fake_fails(const char *symbol);
struct range *fake_range_add(enum range_kind kind, uintptr_t at, size_t length);
/* The range that holds all of [at, +length); NULL: none. Of adjacent mapped ones, the first. */
struct range *fake_range_of(uintptr_t at, size_t length, bool host);
struct range *fake_range_at(enum range_kind kind, uintptr_t at);
uint64_t fake_device_bytes(void); /* that this process has allocated */
/* A range of that kind that holds all of [at, +length). */
struct range *fake_range_in(enum range_kind kind, uintptr_t at, size_t length);

/* fake_cuda_images.c */
/* The value that was set, else the environment's value of that name, else the usual one. */
int fake_setting(const char *name, int set, int usual);
int fake_number(void);
int fake_capability(void);

/* fake_cuda_streams.c */
struct op *fake_stream_add(struct stream *stream);
/* The number of the next operation, from the stream's beginning. */
uint64_t fake_stream_end(const struct stream *stream);
bool fake_stream_done(const struct stream *stream, uint64_t upto);
/* Runs the stream's operations up to this number, exclusive. */
void fake_stream_run(struct stream *stream, uint64_t upto);
void fake_streams_end(void); /* they end with their context; fake_state.streams counts them */

/* fake_cuda_vmm.c */
unsigned fake_handle_types(const struct physical *memory);
int fake_physical_fd(const struct physical *memory); /* the memory's own */

/* fake_cuda_capture.c */
/* Refuses a call that a capture in progress forbids, and invalidates that capture. */
sl_cu_result fake_capture_check(const char *symbol);
bool fake_captured(const struct stream *stream); /* operations put there are recorded, not run */

/* fake_cuda_wait.c */
void fake_hang(void); /* returns only when the device no longer hangs */

/* fake_cuda_events.c: an event's part for other processes; NULL: not interprocess */
struct fake_event_page *fake_event_page_make(void);
/* A new event, linked with those that exist. */
struct event *fake_event_new(void);
/* False: it ended with its context. */
bool fake_event_end(struct event *event);
void fake_events_end(void); /* they end with their context; fake_state.events counts them */
void fake_event_recorded(struct event *event, struct stream *stream);
void fake_event_reached(struct fake_event_page *page, uint64_t number);
bool fake_event_imported_over(const struct event *event);

/* A call that acquires something fails before it does; one that releases something has released it
 * even if it fails. */
#define LOCKED()                                                 \
    __attribute__((cleanup(fake_unlock))) const int locked_ = 0; \
    (void)locked_;                                               \
    fake_lock()
#define TAKES()                                   \
    LOCKED();                                     \
    sl_cu_result refused_ = fake_fails(__func__); \
    if (refused_ != 0) {                          \
        return refused_;                          \
    }
#define GIVES() \
    LOCKED();   \
    sl_cu_result result = fake_fails(__func__)

/* Calls are defined under plain names, which the table's symbols stand for. */
#define EXPORT __attribute__((visibility("default")))
#define ENTRY(field, symbol, needed, parameters) \
    EXPORT sl_cu_result fake_##field parameters __asm__(symbol);
SL_DRIVER_TABLE(ENTRY)
#undef ENTRY

#endif
