/* client/gate/writer.c - see writer.h.
 *
 * One thread reads questions. Each slot has another one, which carries out what is asked of it: so a put that waits
 * keeps nobody from pinning. What needs no slot is done at once. A last thread ends the process when the client is
 * gone, or the node wants it, and a call into the node is in the way: calls end by their deadlines alone. */
#include "client/gate/writer.h"
#include "client/gate/drafts.h"
#include "client/gate/node_client.h"
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A call that is under way has so long to end in order. */
#define GRACE_MS 200
/* So much of memory clients of one user may pin, unless the setting says so, and have in drafts. */
#define PIN_SHARE    4u
#define WINDOW_BYTES (UINT64_C(16) << 20) /* of all slots */
#define DRAFT_SHARE  4u
/* How often is looked for drafts whose time is over. */
#define EXPIRE_MS 250

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

struct asked {
    struct sl_gate_ask ask;
    unsigned char *slot;
    uint32_t count;
    bool at_once;
    uint64_t read_ns, deadline_ns;
};

/* Of a slot: the thread that answers what is asked of it. */
struct server {
    struct writer *writer;
    pthread_t thread;
    bool runs;
    struct question *question; /* of the thread alone */
    /* Under the writer's lock: */
    pthread_cond_t changed;
    bool busy; /* asked, and not answered yet */
    struct asked asked;
};

struct writer {
    struct sl_client *client;
    struct shares shares;
    uint64_t pin_bytes_max; /* of its user */
    int window_fd;
    unsigned char *window;
    uint64_t window_bytes, slot_bytes;
    struct drafts *drafts;
    uint64_t drafts_until_ns; /* none is open later; of the thread that reads */
    char pins[SL_CLIENT_PINS_NAME_BYTES];
    char pins_path[1024 + SL_CLIENT_PINS_NAME_BYTES];
    struct server servers[SL_GATE_SLOTS];
    struct writer_client of;
    pthread_t watcher;
    bool watched;
    int over_fd, done_fd;  /* events for the watcher: it should end soon, it has ended */
    pthread_mutex_t lock;  /* all below, and the servers */
    bool over;             /* servers end */
    struct sl_view *views; /* SL_GATE_VIEWS_MAX; at is NULL: free */
    uint32_t view_next;
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

static sl_err client_open(struct writer *self, const struct writer_options *options, uint32_t uid,
                          struct sl_error *why)
{
    char name[24];
    (void)snprintf(name, sizeof(name), WRITER_NAME, uid);
    sl_err err = node_client_open(name, options, self->pin_bytes_max, &self->client, why);
    if (err == SL_OK) {
        sl_client_pins_name(self->client, self->pins);
        (void)snprintf(self->pins_path, sizeof(self->pins_path), "%s/%s", options->paths->shm_dir,
                       self->pins);
    }
    return err;
}

const char *writer_pins(const struct writer *self)
{
    return self->pins;
}

static sl_err servers_make(struct writer *self, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < SL_GATE_SLOTS; i++) {
        struct server *server = &self->servers[i];
        server->writer = self;
        (void)pthread_cond_init(&server->changed, NULL);
        server->question = calloc(1, sizeof(*server->question));
        err = server->question == NULL ? SL_ERR_NO_MEMORY : err;
    }
    return err == SL_OK ? SL_OK : sl_fail(why, err, "writer");
}

static sl_err drafts_open(struct writer *self, uint64_t memory_bytes, struct sl_error *why)
{
    const struct drafts_options options = {
        .client = self->client, .shares = self->shares, .bytes_max = memory_bytes / DRAFT_SHARE};
    self->drafts = drafts_create(&options);
    return self->drafts != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "writer");
}

sl_err writer_open(const struct writer_options *options, uint32_t uid, struct writer **out,
                   struct sl_error *why)
{
    struct writer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "writer");
    }
    uint64_t memory_bytes = sl_config_u64(options->config, SL_SET_memory);
    uint64_t pin_bytes_max = sl_config_u64(options->config, SL_SET_clients_pin_bytes_max);
    (void)pthread_mutex_init(&self->lock, NULL);
    self->shares = options->shares;
    self->pin_bytes_max = pin_bytes_max > 0 ? pin_bytes_max : SL_MAX(memory_bytes / PIN_SHARE, 1);
    self->window_fd = -1;
    self->over_fd = eventfd(0, EFD_CLOEXEC);
    self->done_fd = eventfd(0, EFD_CLOEXEC);
    self->views = calloc(SL_GATE_VIEWS_MAX, sizeof(*self->views));
    sl_err err = servers_make(self, why);
    if (err == SL_OK && self->views == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "writer");
    }
    if (err == SL_OK && (self->over_fd < 0 || self->done_fd < 0)) {
        err = sl_fail_os(why, errno, "eventfd");
    }
    uint64_t of_user = sl_config_u64(options->config, SL_SET_clients_of_user);
    if (err == SL_OK && !shares_take(&self->shares, SHARE_WRITERS, 1, of_user, false)) {
        err = sl_fail(why, SL_ERR_LIMIT,
                      "too many clients of other users that write: %" PRIu64
                      " of each (clients_of_user)",
                      of_user);
    }
    if (err == SL_OK) {
        err = window_make(self, WINDOW_BYTES, why);
    }
    if (err == SL_OK) {
        err = client_open(self, options, uid, why);
    }
    if (err == SL_OK) {
        err = drafts_open(self, memory_bytes, why);
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

/* The last thing: until then the client's death ends the process. */
static void watcher_end(struct writer *self)
{
    uint64_t one = 1;
    if (self->watched && write(self->done_fd, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
        (void)pthread_join(self->watcher, NULL);
    }
    self->watched = false;
}

void writer_close(struct writer **self)
{
    struct writer *gone = *self;
    *self = NULL;
    if (gone == NULL) {
        return;
    }
    drafts_destroy(&gone->drafts);
    /* Views that are left end with the client: the registrar removes the file of the pins, by which the
     * guest sees that they are over, before it gives the bytes to others. */
    sl_client_close(&gone->client);
    watcher_end(gone);
    if (gone->window != NULL) {
        (void)munmap(gone->window, gone->window_bytes);
    }
    const int fds[] = {gone->window_fd, gone->over_fd, gone->done_fd};
    for (uint32_t i = 0; i < SL_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    for (uint32_t i = 0; i < SL_GATE_SLOTS; i++) {
        (void)pthread_cond_destroy(&gone->servers[i].changed);
        free(gone->servers[i].question);
    }
    (void)pthread_mutex_destroy(&gone->lock);
    share_empty(gone->shares.own, atomic_load(&gone->shares.own->uid));
    free(gone->views);
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
static sl_err slot_read(const struct server *self, const struct asked *asked, bool wants_key,
                        bool wants_value, struct sl_error *why)
{
    struct question *all = self->question;
    const unsigned char *slot = asked->slot;
    uint32_t count = asked->count;
    memcpy(all->items, slot, count * sizeof(*all->items));
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_gate_item *item = &all->items[i];
        if (wants_key && (item->key_length == 0 || item->key_length > SL_KEY_BYTES_MAX ||
                          !lies_within(self->writer, count, item->key_at, item->key_length))) {
            return sl_fail(why, SL_ERR_INVALID, "item %u: a key outside its slot", i);
        }
        if (wants_value && !lies_within(self->writer, count, item->value_at, item->length_bytes)) {
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

/* At least 1: 0 is the node's own. */
static uint64_t left_ns(const struct asked *asked)
{
    return SL_MAX(sl_budget_ns(sl_clock_monotonic_ns(), asked->deadline_ns), 1);
}

static sl_err values_put(struct server *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    const struct sl_terms terms = {.at_once = asked->at_once};
    sl_err err = slot_read(self, asked, true, true, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < asked->count; i++) {
        all->values[i] = (struct sl_pieces){.key = all->keys[i], .at = &all->pieces[i], .count = 1};
    }
    return sl_put_pieces(self->writer->client, all->values, asked->count, &terms, all->codes,
                         left_ns(asked), why);
}

/* Takes the view. 0: all are taken. */
static uint32_t view_keep(struct writer *self, struct sl_view *view)
{
    uint32_t number = 0;
    (void)pthread_mutex_lock(&self->lock);
    for (uint32_t tries = 0; tries < SL_GATE_VIEWS_MAX && number == 0; tries++) {
        uint32_t at = self->view_next++ % SL_GATE_VIEWS_MAX;
        if (self->views[at].at == NULL) {
            self->views[at] = *view;
            *view = (struct sl_view){0};
            number = at + 1;
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return number;
}

static void unpin(struct writer *self, uint64_t number)
{
    struct sl_view view = {0};
    if (number < 1 || number > SL_GATE_VIEWS_MAX) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    view = self->views[number - 1];
    self->views[number - 1] = (struct sl_view){0};
    (void)pthread_mutex_unlock(&self->lock);
    shares_let(&self->shares, SHARE_PINNED_BYTES, view.length_bytes);
    sl_view_release(self->client, &view);
}

/* Tells where the view lies, and keeps it. */
static sl_err view_tell(struct writer *self, struct sl_view *view, struct sl_gate_item *item)
{
    struct sl_client_place place;
    uint64_t length_bytes = view->length_bytes;
    if (!sl_view_place(self->client, view, &place)) {
        return SL_ERR_STALE;
    }
    if (!shares_take(&self->shares, SHARE_PINNED_BYTES, length_bytes, self->pin_bytes_max, false)) {
        return SL_ERR_LIMIT;
    }
    uint32_t number = view_keep(self, view);
    if (number == 0) {
        shares_let(&self->shares, SHARE_PINNED_BYTES, length_bytes);
        return SL_ERR_LIMIT;
    }
    item->place = place.offset_bytes;
    item->length_bytes = length_bytes;
    item->arena = place.arena;
    item->birth = place.birth;
    item->number = number;
    return SL_OK;
}

static sl_err values_pin(struct server *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    struct writer *writer = self->writer;
    sl_err err = slot_read(self, asked, true, false, why);
    if (err != SL_OK) {
        return err;
    }
    memset(all->views, 0, asked->count * sizeof(*all->views));
    err = sl_get_pinned_batch(writer->client, all->keys, all->views, asked->count, all->codes,
                              left_ns(asked), why);
    for (uint32_t i = 0; i < asked->count; i++) {
        if (err == SL_OK && all->codes[i] == SL_OK) {
            all->codes[i] = view_tell(writer, &all->views[i], &all->items[i]);
        }
        sl_view_release(writer->client, &all->views[i]); /* where nobody was told of it */
    }
    return err;
}

static sl_err draft_begin(struct server *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    struct sl_gate_item *item = &all->items[0];
    sl_err err = slot_read(self, asked, true, false, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t lives_ns = item->place == 0 ? SL_GATE_WAIT_NS_MAX : item->place;
    const struct draft_wish wish = {
        .key = all->keys[0],
        .length_bytes = item->length_bytes,
        .until_ns = sl_deadline_ns(asked->read_ns, SL_MIN(lives_ns, SL_GATE_WAIT_NS_MAX)),
        .deadline_ns = asked->deadline_ns,
        .at_once = asked->at_once};
    return drafts_begin(self->writer->drafts, &wish, &item->number, all->codes, why);
}

static sl_err draft_fill(struct server *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    sl_err err = slot_read(self, asked, false, true, why);
    for (uint32_t i = 0; err == SL_OK && i < asked->count; i++) {
        all->pieces[i].offset_bytes = all->items[i].place;
        all->codes[i] = SL_OK;
    }
    return err != SL_OK ? err
                        : drafts_fill(self->writer->drafts, all->items[0].number, all->pieces,
                                      asked->count, why);
}

static sl_err draft_commit(struct server *self, const struct asked *asked, struct sl_error *why)
{
    struct question *all = self->question;
    sl_err err = slot_read(self, asked, false, false, why);
    return err != SL_OK ? err
                        : drafts_commit(self->writer->drafts, all->items[0].number,
                                        asked->deadline_ns, all->codes, why);
}

static sl_err carry_out(struct server *self, const struct asked *asked, struct sl_error *why)
{
    switch (asked->ask.question) {
    case SL_GATE_PUT:
        return values_put(self, asked, why);
    case SL_GATE_PIN:
        return values_pin(self, asked, why);
    case SL_GATE_DRAFT:
        return draft_begin(self, asked, why);
    case SL_GATE_FILL:
        return draft_fill(self, asked, why);
    case SL_GATE_COMMIT:
        return draft_commit(self, asked, why);
    default:
        return sl_fail(why, SL_ERR_UNSUPPORTED, "question %u: this gate is of sluice %s",
                       asked->ask.question, SL_VERSION);
    }
}

/* Carries it out, and writes into the slot what came of it. */
static sl_err question_run(struct server *self, const struct asked *asked, struct sl_error *why)
{
    sl_err err = carry_out(self, asked, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < asked->count; i++) {
        self->question->items[i].code = (uint32_t)self->question->codes[i];
    }
    /* Never read again: it is the client's. */
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): who serves has a window */
    memcpy(asked->slot, self->question->items, asked->count * sizeof(struct sl_gate_item));
    return SL_OK;
}

/* Whole, or not at all: any thread. False: it is over. */
static bool answer_send(const struct writer *self, const struct sl_gate_ask *ask, sl_err err,
                        const struct sl_error *why)
{
    struct sl_gate_answer answer = {
        .version = SL_GATE_VERSION, .code = (uint32_t)err, .a = ask->a & ~SL_GATE_AT_ONCE};
    memcpy(answer.magic, sl_gate_answer_magic, sizeof(answer.magic));
    (void)snprintf(answer.text, sizeof(answer.text), "%s", err == SL_OK ? "" : why->text);
    return sl_gate_packet_send(self->of.socket_fd, &answer, sizeof(answer), -1) == 0;
}

static void *server_run(void *context)
{
    struct server *self = context;
    struct writer *writer = self->writer;
    (void)pthread_mutex_lock(&writer->lock);
    while (!writer->over) {
        if (!self->busy) {
            (void)pthread_cond_wait(&self->changed, &writer->lock);
            continue;
        }
        const struct asked asked = self->asked;
        (void)pthread_mutex_unlock(&writer->lock);
        struct sl_error why = {0};
        sl_err err = question_run(self, &asked, &why);
        (void)pthread_mutex_lock(&writer->lock);
        self->busy = false; /* before the client hears of it, and asks again */
        if (!answer_send(writer, &asked.ask, err, &why)) {
            (void)shutdown(writer->of.socket_fd, SHUT_RDWR); /* the thread that reads sees it */
        }
    }
    (void)pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* ---- reading questions ---- */

/* Errors: SL_ERR_INVALID, SL_ERR_VERSION. */
static sl_err asked_of(const struct writer *self, const struct sl_gate_ask *ask, struct asked *out,
                       struct sl_error *why)
{
    uint64_t slot = ask->a & ~SL_GATE_AT_ONCE;
    bool of_one = ask->question == SL_GATE_DRAFT || ask->question == SL_GATE_COMMIT;
    if (ask->version != SL_GATE_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "the gate speaks version %u", SL_GATE_VERSION);
    }
    if (slot >= SL_GATE_SLOTS || ask->b == 0 || ask->b > (of_one ? 1 : SL_GATE_ITEMS_MAX)) {
        return sl_fail(why, SL_ERR_INVALID, "slot %" PRIu64 " with %" PRIu64 " items", slot,
                       ask->b);
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    *out =
        (struct asked){.ask = *ask,
                       .slot = self->window + slot * self->slot_bytes,
                       .count = (uint32_t)ask->b,
                       .at_once = (ask->a & SL_GATE_AT_ONCE) != 0,
                       .read_ns = now_ns,
                       .deadline_ns = sl_deadline_ns(now_ns, SL_MIN(ask->c, SL_GATE_WAIT_NS_MAX))};
    return SL_OK;
}

/* To the thread of its slot. False: it is over. */
static bool question_hand(struct writer *self, const struct sl_gate_ask *ask)
{
    struct asked asked = {0};
    struct sl_error why = {0};
    sl_err err = asked_of(self, ask, &asked, &why);
    if (err != SL_OK) {
        return answer_send(self, ask, err, &why);
    }
    struct server *server = &self->servers[ask->a & ~SL_GATE_AT_ONCE];
    if (ask->question == SL_GATE_DRAFT) {
        self->drafts_until_ns = sl_deadline_ns(asked.read_ns, SL_GATE_WAIT_NS_MAX + SL_NS_PER_S);
    }
    (void)pthread_mutex_lock(&self->lock);
    bool fine = !server->busy; /* else it does not wait for its answer */
    if (fine) {
        server->asked = asked;
        server->busy = true;
        (void)pthread_cond_signal(&server->changed);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return fine;
}

/* False: it is over. */
static bool question_serve(struct writer *self)
{
    struct sl_gate_ask ask;
    int taken = -1;
    int os_code = sl_gate_packet_take(self->of.socket_fd, &ask, sizeof(ask), &taken);
    if (taken >= 0) { /* nobody asked for it */
        (void)close(taken);
    }
    if (os_code != 0) {
        return os_code == EAGAIN;
    }
    if (memcmp(ask.magic, sl_gate_ask_magic, sizeof(ask.magic)) != 0) {
        return false;
    }
    switch (ask.question) {
    case SL_GATE_BYE:
        return false;
    case SL_GATE_UNPIN:
        unpin(self, ask.a);
        return true;
    case SL_GATE_DROP:
        drafts_drop(self->drafts, (uint32_t)SL_MIN(ask.a, UINT32_MAX));
        return true;
    default:
        return question_hand(self, &ask);
    }
}

/* ---- serving ---- */

static void *watch_run(void *context)
{
    const struct writer *self = context;
    struct pollfd polled[] = {{.fd = self->done_fd, .events = POLLIN},
                              {.fd = self->over_fd, .events = POLLIN},
                              {.fd = self->of.pidfd, .events = POLLIN},
                              {.fd = self->of.signal_fd, .events = POLLIN}};
    while (poll(polled, SL_COUNT(polled), -1) < 0 && errno == EINTR) {
    }
    if (poll(polled, 1, GRACE_MS) <= 0) {
        /* The registrar sees it, and takes back what was under way; and what is pinned, since who closes
         * its connection has no views any more. */
        (void)unlink(self->pins_path);
        _exit(0);
    }
    return NULL;
}

static bool threads_start(struct writer *self)
{
    bool all = pthread_create(&self->watcher, NULL, watch_run, self) == 0;
    self->watched = all;
    for (uint32_t i = 0; i < SL_GATE_SLOTS && all; i++) {
        struct server *server = &self->servers[i];
        all = pthread_create(&server->thread, NULL, server_run, server) == 0;
        server->runs = all;
    }
    return all;
}

/* Those in a call end with it, or the watcher ends all. */
static void servers_end(struct writer *self)
{
    uint64_t one = 1;
    ssize_t written = write(self->over_fd, &one, sizeof(one)); /* full means written already */
    (void)written;
    (void)pthread_mutex_lock(&self->lock);
    self->over = true;
    for (uint32_t i = 0; i < SL_GATE_SLOTS; i++) {
        (void)pthread_cond_signal(&self->servers[i].changed);
    }
    (void)pthread_mutex_unlock(&self->lock);
    for (uint32_t i = 0; i < SL_GATE_SLOTS; i++) {
        if (self->servers[i].runs) {
            (void)pthread_join(self->servers[i].thread, NULL);
        }
    }
}

void writer_serve(struct writer *self, const struct writer_client *client)
{
    self->of = *client;
    bool goes_on = threads_start(self);
    while (goes_on) {
        struct pollfd polled[] = {{.fd = client->socket_fd, .events = POLLIN},
                                  {.fd = client->signal_fd, .events = POLLIN},
                                  {.fd = client->pidfd, .events = POLLIN}};
        uint64_t now_ns = sl_clock_monotonic_ns();
        drafts_expire(self->drafts, now_ns);
        if (poll(polled, SL_COUNT(polled), now_ns < self->drafts_until_ns ? EXPIRE_MS : -1) < 0) {
            goes_on = errno == EINTR;
            continue;
        }
        goes_on =
            polled[1].revents == 0 && polled[2].revents == 0 &&
            ((polled[0].revents & POLLIN) != 0 ? question_serve(self) : polled[0].revents == 0);
    }
    servers_end(self);
}
