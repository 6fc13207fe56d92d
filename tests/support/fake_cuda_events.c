/* tests/support/fake_cuda_events.c - the fake driver's events that other processes open: a page of
 * shared memory counts how often each was recorded and reached. */
#include "tests/support/fake_cuda_internal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES     4096u
#define EVENT_MAGIC    UINT64_C(0x746e657665616b46)
#define INVALID_HANDLE 400
#define MAP_REFUSED    205

struct fake_event_page {
    uint64_t magic;
    _Atomic uint64_t recorded, reached;
    int fd; /* of the process that made it */
    _Atomic bool destroyed;
};

struct event_name {
    uint64_t magic, pid;
    int64_t fd;
};

static struct event *events;

static struct fake_event_page *page_map(int fd)
{
    void *at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

struct fake_event_page *fake_event_page_make(void)
{
    int fd = memfd_create("fake-event", MFD_CLOEXEC);
    struct fake_event_page *page = fd < 0 || ftruncate(fd, PAGE_BYTES) != 0 ? NULL : page_map(fd);
    if (page == NULL) {
        abort();
    }
    page->magic = EVENT_MAGIC;
    page->fd = fd;
    return page;
}

static void page_drop(struct fake_event_page *page, bool imported)
{
    if (page == NULL) {
        return;
    }
    if (imported) {
        (void)munmap(page, PAGE_BYTES);
    } else { /* streams may still reach it: the page stays */
        page->destroyed = true;
        (void)close(page->fd);
    }
}

struct event *fake_event_new(void)
{
    struct event *event = calloc(1, sizeof(*event));
    if (event == NULL) {
        abort();
    }
    event->next = events;
    events = event;
    fake_state.events++;
    return event;
}

bool fake_event_end(struct event *event)
{
    struct event **link = &events;
    while (*link != NULL && *link != event) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return false;
    }
    *link = event->next;
    page_drop(event->page, event->imported);
    free(event);
    fake_state.events--;
    return true;
}

void fake_events_end(void)
{
    int counted = fake_state.events;
    while (events != NULL) {
        (void)fake_event_end(events);
    }
    fake_state.events = counted;
}

void fake_event_recorded(struct event *event, struct stream *stream)
{
    if (event->page == NULL) {
        return;
    }
    struct op *op = fake_stream_add(stream);
    op->kind = EVENT;
    op->to = (uintptr_t)event->page;
    op->length = ++event->page->recorded;
}

void fake_event_reached(struct fake_event_page *page, uint64_t number)
{
    page->reached = number;
}

bool fake_event_imported_over(const struct event *event)
{
    return event->page->reached >= event->page->recorded;
}

sl_cu_result fake_event_ipc_get(struct sl_cu_ipc *handle, sl_cu_event at)
{
    TAKES();
    const struct event *event = at;
    if (event->page == NULL || event->imported) {
        return INVALID_HANDLE; /* not made for interprocess use */
    }
    const struct event_name name = {
        .magic = EVENT_MAGIC, .pid = (uint64_t)getpid(), .fd = event->page->fd};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &name, sizeof(name));
    return 0;
}

sl_cu_result fake_event_ipc_open(sl_cu_event *out, struct sl_cu_ipc handle)
{
    char path[64];
    struct event_name name;
    TAKES();
    memcpy(&name, handle.bytes, sizeof(name));
    if (!fake_current || name.magic != EVENT_MAGIC) {
        return INVALID_HANDLE;
    }
    (void)snprintf(path, sizeof(path), "/proc/%llu/fd/%lld", (unsigned long long)name.pid,
                   (long long)name.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct fake_event_page *page = fd < 0 ? NULL : page_map(fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (page == NULL) {
        return MAP_REFUSED;
    }
    if (page->magic != EVENT_MAGIC || page->destroyed) {
        (void)munmap(page, PAGE_BYTES);
        return INVALID_HANDLE;
    }
    struct event *event = fake_event_new();
    event->page = page;
    event->imported = true;
    *out = event;
    return 0;
}
