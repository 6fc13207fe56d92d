/* tests/support/fake_cuda_internal.h - what the sources of the played driver share. */
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
    unsigned long long id;   /* unlike that of any range before */
    bool pooled;             /* of a stream-ordered pool */
    struct physical *memory; /* of MAPPED */
};
struct op {
    enum { COPY, FILL, SWAP_OUT, SWAP_IN, HASH, HASH_RUNS, EVENT } kind;
    uintptr_t to, from;
    size_t length;
    uint64_t workers;
    struct sl_hash_job job; /* of a kernel; its swap alone of SWAP_* */
};
struct stream {
    struct stream *next; /* of those that live */
    struct op *ops;
    size_t count, capacity, begun;
    uint64_t dropped; /* that were before the first of `ops` */
};
struct event {
    struct event *next;           /* of those that live */
    struct stream *stream;        /* NULL: not recorded, or waited for */
    uint64_t upto;                /* what of the stream was there then */
    uint64_t queries;             /* since then */
    struct fake_event_page *page; /* NULL: of this process alone */
    bool imported;
};

/* fake_cuda.c */
extern struct fake_cuda fake_state;
extern _Thread_local bool fake_current; /* a context is, in this thread */
/* Of all that is here: recursive, held by every call. */
void fake_lock(void);
void fake_unlock(const int *unused);
/* Counts the call and says how it fails, if it does. */
sl_cu_result fake_fails(const char *symbol);
struct range *fake_range_add(enum range_kind kind, uintptr_t at, size_t length);
/* The range that holds all of [at, +length); NULL: none does. Mapped ranges may follow each other:
 * the first of them. */
struct range *fake_range_of(uintptr_t at, size_t length, bool host);
struct range *fake_range_at(enum range_kind kind, uintptr_t at);
uint64_t fake_device_bytes(void); /* that this process has allocated */
/* One of that kind that holds all of [at, +length). */
struct range *fake_range_in(enum range_kind kind, uintptr_t at, size_t length);

/* fake_cuda_images.c */
/* What was set, else what the environment says under that name, else the usual. */
int fake_setting(const char *name, int set, int usual);
int fake_number(void);
int fake_capability(void);

/* fake_cuda_streams.c */
struct op *fake_stream_add(struct stream *stream);
/* The number of the next operation, from the stream's beginning. */
uint64_t fake_stream_end(const struct stream *stream);
bool fake_stream_done(const struct stream *stream, uint64_t upto);
/* Does what is in the stream, before the operation of this number. */
void fake_stream_run(struct stream *stream, uint64_t upto);
void fake_streams_end(void); /* they go with their context; fake_state.streams says so */

/* fake_cuda_vmm.c */
unsigned fake_handle_types(const struct physical *memory);
int fake_physical_fd(const struct physical *memory); /* the memory's own */

/* fake_cuda_capture.c */
/* Refuses a call that a capture in progress forbids, and spoils that capture. */
sl_cu_result fake_capture_check(const char *symbol);
bool fake_captured(const struct stream *stream); /* what is put there is recorded, not done */

/* fake_cuda_wait.c */
void fake_hang(void); /* for ever, while the device hangs */

/* fake_cuda_events.c: what other processes see of an event; NULL: it is no interprocess event */
struct fake_event_page *fake_event_page_make(void);
/* A new one, among those that live. */
struct event *fake_event_new(void);
/* False: it went with its context. */
bool fake_event_end(struct event *event);
void fake_events_end(void); /* they go with their context; fake_state.events says so */
void fake_event_recorded(struct event *event, struct stream *stream);
void fake_event_reached(struct fake_event_page *page, uint64_t number);
bool fake_event_imported_over(const struct event *event);

/* What takes something leaves without it; what gives something back has given it back. */
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
