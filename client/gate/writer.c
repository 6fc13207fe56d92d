/* client/gate/writer.c - see writer.h.
 *
 * Two threads. One answers questions, one after the other. The other one ends the process when the client is
 * gone, or the node wants it, and a call into the node is in the way: calls end by their deadlines alone. */
#include "client/gate/writer.h"
#include "client/lib/internal.h"
#include "ipc/gate_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The client waits for its answer no longer than 2 s. */
#define OPEN_NS (1500 * SL_NS_PER_MS)
/* A call that is under way has so long to end in order. */
#define GRACE_MS 200
/* So much of memory each client may pin, unless the setting says so: or one value, up to a quarter. */
#define PIN_SHARE       16u
#define PIN_VALUE_SHARE 4u
/* Drafts under way: one for each slot. */
#define DRAFTS_MAX SL_GATE_SLOTS

/* What the slot of a question says, in memory of this process. */
struct question {
    struct sl_gate_item items[SL_GATE_ITEMS_MAX];
    struct sl_object_key keys[SL_GATE_ITEMS_MAX];
    struct sl_piece pieces[SL_GATE_ITEMS_MAX];
    struct sl_pieces values[SL_GATE_ITEMS_MAX];
    struct sl_view views[SL_GATE_ITEMS_MAX];
    sl_err codes[SL_GATE_ITEMS_MAX];
    char key_bytes[SL_GATE_ITEMS_MAX][SL_KEY_BYTES_MAX];
};

struct writer {
    struct sl_client *client;
    int window_fd;
    unsigned char *window;
    uint64_t window_bytes, slot_bytes, op_timeout_ns;
    struct question *question;
    struct sl_view *views; /* SL_GATE_VIEWS_MAX; at is NULL: free */
    uint32_t view_next;
    struct sl_draft *drafts[DRAFTS_MAX];
    int done_fd;
};

/* ---- opening, closing ---- */

static sl_err window_make(struct writer *self, uint64_t window_bytes, struct sl_error *why)
{
    self->slot_bytes = window_bytes / SL_GATE_SLOTS / SL_PAGE_BYTES * SL_PAGE_BYTES;
    self->window_bytes = self->slot_bytes * SL_GATE_SLOTS;
    self->window_fd =
        (int)syscall(SYS_memfd_create, "sluice-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (self->window_fd < 0 || ftruncate(self->window_fd, (off_t)self->window_bytes) != 0 ||
        fcntl(self->window_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return sl_fail_os(why, errno, "memfd of %" PRIu64 " bytes", self->window_bytes);
    }
    void *at =
        mmap(NULL, self->window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self->window_fd, 0);
    if (at == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes", self->window_bytes);
    }
    self->window = at;
    return SL_OK;
}

static sl_err client_open(struct writer *self, const struct writer_options *options,
                          struct sl_error *why)
{
    char runtime_dir[1100], shm_dir[1100], pin_bytes[64];
    const char *const settings[] = {"attach=files", runtime_dir, shm_dir, pin_bytes, NULL};
    const struct sl_client_options of_client = {
        .api_version = SLUICE_API_VERSION,
        .instance = sl_config_text(options->config, SL_SET_instance),
        .timeout_ns = OPEN_NS,
        .settings = settings};
    uint64_t pinned_max = sl_config_u64(options->config, SL_SET_clients_pin_bytes_max);
    if (pinned_max == 0) {
        uint64_t memory = sl_config_u64(options->config, SL_SET_memory);
        uint64_t value_max = sl_config_u64(options->config, SL_SET_memory_chunk);
        pinned_max = SL_MAX(memory / PIN_SHARE, SL_MIN(value_max, memory / PIN_VALUE_SHARE));
    }
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%s", options->paths->runtime_dir);
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%s", options->paths->shm_dir);
    (void)snprintf(pin_bytes, sizeof(pin_bytes), "client_pin_bytes_max=%" PRIu64, pinned_max);
    return sl_client_open(&of_client, &self->client, why);
}

sl_err writer_open(const struct writer_options *options, struct writer **out, struct sl_error *why)
{
    struct writer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "writer");
    }
    self->window_fd = -1;
    self->done_fd = eventfd(0, EFD_CLOEXEC);
    self->op_timeout_ns = sl_config_u64(options->config, SL_SET_op_timeout);
    self->question = calloc(1, sizeof(*self->question));
    self->views = calloc(SL_GATE_VIEWS_MAX, sizeof(*self->views));
    sl_err err = self->question == NULL || self->views == NULL
                     ? sl_fail(why, SL_ERR_NO_MEMORY, "writer")
                 : self->done_fd < 0 ? sl_fail_os(why, errno, "eventfd")
                                     : SL_OK;
    if (err == SL_OK) {
        err = window_make(self, sl_config_u64(options->config, SL_SET_clients_window), why);
    }
    if (err == SL_OK) {
        err = client_open(self, options, why);
    }
    if (err != SL_OK) {
        writer_close(&self);
        return err;
    }
    *out = self;
    return SL_OK;
}

sl_err writer_window_give(const struct writer *self, int *fd, uint64_t *window_bytes,
                          struct sl_error *why)
{
    int copy = fcntl(self->window_fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return sl_fail_os(why, errno, "descriptor of the window");
    }
    *fd = copy;
    *window_bytes = self->window_bytes;
    return SL_OK;
}

void writer_close(struct writer **self)
{
    struct writer *gone = *self;
    *self = NULL;
    if (gone == NULL) {
        return;
    }
    for (uint32_t i = 0; gone->client != NULL && i < DRAFTS_MAX; i++) {
        sl_draft_drop(&gone->drafts[i]);
    }
    for (uint32_t i = 0; gone->client != NULL && gone->views != NULL && i < SL_GATE_VIEWS_MAX;
         i++) {
        sl_view_release(gone->client, &gone->views[i]);
    }
    sl_client_close(&gone->client);
    if (gone->window != NULL) {
        (void)munmap(gone->window, gone->window_bytes);
    }
    if (gone->window_fd >= 0) {
        (void)close(gone->window_fd);
    }
    if (gone->done_fd >= 0) {
        (void)close(gone->done_fd);
    }
    free(gone->views);
    free(gone->question);
    free(gone);
}

/* ---- reading a slot ---- */

/* Whether [at, +length) lies in the slot, behind `count` items. */
static bool lies_within(const struct writer *self, uint32_t count, uint64_t at,
                        uint64_t length_bytes)
{
    return at >= count * sizeof(struct sl_gate_item) && at <= self->slot_bytes &&
           length_bytes <= self->slot_bytes - at;
}

/* Copies items and keys, as they are now. wants_key, wants_value: what each has to bring. */
static sl_err slot_read(const struct writer *self, const unsigned char *slot, uint32_t count,
                        bool wants_key, bool wants_value, struct sl_error *why)
{
    struct question *all = self->question;
    memcpy(all->items, slot, count * sizeof(*all->items));
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_gate_item *item = &all->items[i];
        if (wants_key && (item->key_length == 0 || item->key_length > SL_KEY_BYTES_MAX ||
                          !lies_within(self, count, item->key_at, item->key_length))) {
            return sl_fail(why, SL_ERR_INVALID, "item %u: a key outside its slot", i);
        }
        if (wants_value && !lies_within(self, count, item->value_at, item->length_bytes)) {
            return sl_fail(why, SL_ERR_INVALID, "item %u: a value outside its slot", i);
        }
        if (wants_key) {
            memcpy(all->key_bytes[i], slot + item->key_at, item->key_length);
            all->keys[i] =
                (struct sl_object_key){.at = all->key_bytes[i], .length = item->key_length};
        }
        if (wants_value) {
            /* Read only: the type is that of gets, too. */
            all->pieces[i] = (struct sl_piece){.at = (void *)(uintptr_t)(slot + item->value_at),
                                               .length_bytes = item->length_bytes};
        }
    }
    return SL_OK;
}

/* ---- questions ---- */

struct asked {
    unsigned char *slot;
    uint32_t question, count;
    bool at_once;
    uint64_t timeout_ns;
};

static sl_err values_put(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    const struct sl_terms terms = {.at_once = asked->at_once};
    sl_err err = slot_read(self, asked->slot, asked->count, true, true, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < asked->count; i++) {
        all->values[i] = (struct sl_pieces){.key = all->keys[i], .at = &all->pieces[i], .count = 1};
    }
    return sl_put_pieces(self->client, all->values, asked->count, &terms, all->codes,
                         asked->timeout_ns, why);
}

/* 0: all are taken. */
static uint32_t view_keep(struct writer *self, const struct sl_view *view)
{
    for (uint32_t tries = 0; tries < SL_GATE_VIEWS_MAX; tries++) {
        uint32_t at = self->view_next++ % SL_GATE_VIEWS_MAX;
        if (self->views[at].at == NULL) {
            self->views[at] = *view;
            return at + 1;
        }
    }
    return 0;
}

/* Tells where the view lies, and keeps it. */
static sl_err view_tell(struct writer *self, struct sl_view *view, struct sl_gate_item *item)
{
    struct sl_client_place place;
    sl_err err = sl_view_place(self->client, view, &place) ? SL_OK : SL_ERR_STALE;
    uint32_t number = err == SL_OK ? view_keep(self, view) : 0;
    if (number == 0) {
        sl_view_release(self->client, view);
        return err != SL_OK ? err : SL_ERR_LIMIT;
    }
    item->place = place.offset_bytes;
    item->length_bytes = view->length_bytes;
    item->arena = place.arena;
    item->birth = place.birth;
    item->number = number;
    return SL_OK;
}

static sl_err values_pin(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    sl_err err = slot_read(self, asked->slot, asked->count, true, false, why);
    if (err == SL_OK) {
        err = sl_get_pinned_batch(self->client, all->keys, all->views, asked->count, all->codes,
                                  asked->timeout_ns, why);
    }
    for (uint32_t i = 0; err == SL_OK && i < asked->count; i++) {
        if (all->codes[i] == SL_OK) {
            all->codes[i] = view_tell(self, &all->views[i], &all->items[i]);
        }
    }
    return err;
}

static void unpin(struct writer *self, uint64_t number)
{
    if (number >= 1 && number <= SL_GATE_VIEWS_MAX) {
        sl_view_release(self->client, &self->views[number - 1]);
    }
}

static sl_err draft_begin(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    const struct sl_terms terms = {.at_once = asked->at_once};
    uint32_t at = 0;
    sl_err err = slot_read(self, asked->slot, 1, true, false, why);
    while (at < DRAFTS_MAX && self->drafts[at] != NULL) {
        at++;
    }
    if (err != SL_OK || at == DRAFTS_MAX) {
        return err != SL_OK ? err : sl_fail(why, SL_ERR_LIMIT, "%u drafts at a time", DRAFTS_MAX);
    }
    err = sl_draft_begin(self->client, all->keys, NULL, &all->items[0].length_bytes, 1, &terms, 0,
                         &self->drafts[at], all->codes, asked->timeout_ns, why);
    all->items[0].number = at + 1;
    return err;
}

/* NULL: there is none of this number. */
static struct sl_draft **draft_of(struct writer *self, uint32_t number)
{
    bool known = number >= 1 && number <= DRAFTS_MAX && self->drafts[number - 1] != NULL;
    return known ? &self->drafts[number - 1] : NULL;
}

static sl_err draft_fill(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    sl_err err = slot_read(self, asked->slot, asked->count, false, true, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_draft **draft = draft_of(self, all->items[0].number);
    for (uint32_t i = 0; i < asked->count; i++) {
        all->pieces[i].offset_bytes = all->items[i].place;
        all->codes[i] = SL_OK;
    }
    return draft == NULL ? sl_fail(why, SL_ERR_INVALID, "no draft %u", all->items[0].number)
                         : sl_draft_write(*draft, all->pieces, asked->count, why);
}

static sl_err draft_end(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    sl_err err = slot_read(self, asked->slot, 1, false, false, why);
    struct sl_draft **draft = err == SL_OK ? draft_of(self, all->items[0].number) : NULL;
    if (draft == NULL) {
        return err != SL_OK ? err
                            : sl_fail(why, SL_ERR_INVALID, "no draft %u", all->items[0].number);
    }
    all->codes[0] = SL_OK;
    if (asked->question == SL_GATE_DROP) {
        sl_draft_drop(draft);
        return SL_OK;
    }
    err = sl_draft_commit(self->client, draft, 1, all->codes, asked->timeout_ns, why);
    sl_draft_drop(draft); /* where there was no memory to commit it */
    return err;
}

static sl_err carry_out(struct writer *self, const struct asked *asked, struct sl_error *why)
{
    switch (asked->question) {
    case SL_GATE_PUT:
        return values_put(self, asked, why);
    case SL_GATE_PIN:
        return values_pin(self, asked, why);
    case SL_GATE_DRAFT:
        return draft_begin(self, asked, why);
    case SL_GATE_FILL:
        return draft_fill(self, asked, why);
    case SL_GATE_COMMIT:
    case SL_GATE_DROP:
        return draft_end(self, asked, why);
    default:
        return sl_fail(why, SL_ERR_UNSUPPORTED, "question %u: this gate is of sluice %s",
                       asked->question, SL_VERSION);
    }
}

/* Errors: SL_ERR_INVALID. */
static sl_err asked_of(const struct writer *self, const struct sl_gate_ask *ask, struct asked *out,
                       struct sl_error *why)
{
    uint64_t slot = ask->a & ~SL_GATE_AT_ONCE;
    bool of_one = ask->question == SL_GATE_DRAFT || ask->question == SL_GATE_COMMIT ||
                  ask->question == SL_GATE_DROP;
    if (slot >= SL_GATE_SLOTS || ask->b == 0 || ask->b > (of_one ? 1 : SL_GATE_ITEMS_MAX)) {
        return sl_fail(why, SL_ERR_INVALID, "slot %" PRIu64 " with %" PRIu64 " items", slot,
                       ask->b);
    }
    *out = (struct asked){.slot = self->window + slot * self->slot_bytes,
                          .question = ask->question,
                          .count = (uint32_t)ask->b,
                          .at_once = (ask->a & SL_GATE_AT_ONCE) != 0,
                          .timeout_ns = SL_MAX(SL_MIN(ask->c, self->op_timeout_ns), 1)};
    return SL_OK;
}

/* Carries it out, and writes into the slot what came of it. */
static sl_err question_run(struct writer *self, const struct sl_gate_ask *ask, struct sl_error *why)
{
    struct asked asked = {0};
    sl_err err = asked_of(self, ask, &asked, why);
    if (err != SL_OK) {
        return err;
    }
    err = carry_out(self, &asked, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < asked.count; i++) {
        self->question->items[i].code = (uint32_t)self->question->codes[i];
    }
    /* Never read again: it is the client's. */
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): who serves has a window */
    memcpy(asked.slot, self->question->items, asked.count * sizeof(struct sl_gate_item));
    return SL_OK;
}

/* False: it is over. */
static bool question_answer(struct writer *self, int socket_fd, const struct sl_gate_ask *ask)
{
    struct sl_gate_answer answer = {.version = SL_GATE_VERSION, .a = ask->a & ~SL_GATE_AT_ONCE};
    struct sl_error why = {0};
    sl_err err = ask->version != SL_GATE_VERSION
                     ? sl_fail(&why, SL_ERR_VERSION, "the gate speaks version %u", SL_GATE_VERSION)
                     : question_run(self, ask, &why);
    memcpy(answer.magic, sl_gate_answer_magic, sizeof(answer.magic));
    answer.code = (uint32_t)err;
    (void)snprintf(answer.text, sizeof(answer.text), "%s", why.text);
    return sl_gate_packet_send(socket_fd, &answer, sizeof(answer), -1) == 0;
}

/* False: it is over. */
static bool question_serve(struct writer *self, int socket_fd)
{
    struct sl_gate_ask ask;
    int taken = -1;
    int os_code = sl_gate_packet_take(socket_fd, &ask, sizeof(ask), &taken);
    if (taken >= 0) { /* nobody asked for it */
        (void)close(taken);
    }
    if (os_code != 0) {
        return os_code == EAGAIN;
    }
    if (memcmp(ask.magic, sl_gate_ask_magic, sizeof(ask.magic)) != 0 ||
        ask.question == SL_GATE_BYE) {
        return false;
    }
    if (ask.question == SL_GATE_UNPIN) {
        unpin(self, ask.a);
        return true;
    }
    return question_answer(self, socket_fd, &ask);
}

/* ---- serving ---- */

struct watch {
    struct writer_client client;
    int done_fd;
};

static void *watch_run(void *context)
{
    const struct watch *self = context;
    struct pollfd polled[] = {{.fd = self->done_fd, .events = POLLIN},
                              {.fd = self->client.pidfd, .events = POLLIN},
                              {.fd = self->client.signal_fd, .events = POLLIN}};
    while (poll(polled, SL_COUNT(polled), -1) < 0 && errno == EINTR) {
    }
    if (poll(polled, 1, GRACE_MS) <= 0) {
        _exit(0); /* the registrar sees it, and takes back what was under way */
    }
    return NULL;
}

void writer_serve(struct writer *self, const struct writer_client *client)
{
    struct watch watch = {.client = *client, .done_fd = self->done_fd};
    pthread_t watcher;
    bool goes_on = pthread_create(&watcher, NULL, watch_run, &watch) == 0;
    if (!goes_on) {
        return;
    }
    while (goes_on) {
        struct pollfd polled[] = {{.fd = client->socket_fd, .events = POLLIN},
                                  {.fd = client->signal_fd, .events = POLLIN},
                                  {.fd = client->pidfd, .events = POLLIN}};
        if (poll(polled, SL_COUNT(polled), -1) < 0) {
            goes_on = errno == EINTR;
            continue;
        }
        goes_on = polled[1].revents == 0 && polled[2].revents == 0 &&
                  ((polled[0].revents & POLLIN) != 0 ? question_serve(self, client->socket_fd)
                                                     : polled[0].revents == 0);
    }
    uint64_t one = 1;
    if (write(self->done_fd, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
        (void)pthread_join(watcher, NULL);
    }
}
