/* client/lib/guest_line.c - see guest_line.h. One thread at a time waits at the socket, without the lock;
 * the others wait until it has read what is theirs, or leaves. */
#include "client/lib/guest_line.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_door.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A stand-in that was stopped must not stop its client for long. */
#define OPEN_NS (2 * SL_NS_PER_S)
/* Who waits for a slot looks again, whatever it may have missed. */
#define LOOK_NS (20 * SL_NS_PER_MS)
/* Views have the number of their line in 20 bits. */
#define LINES_MAX ((1u << 20) - 1)

void guest_lines_init(struct guest_lines *lines, const struct sl_client *client)
{
    pthread_condattr_t attributes;
    *lines = (struct guest_lines){.client = client};
    pthread_mutex_init(&lines->lock, NULL);
    pthread_mutex_init(&lines->keeping, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lines->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Under the lock. Gives 0 or errno. */
static int packet_send(const struct guest_line *line, struct sl_gate_ask *ask)
{
    memcpy(ask->magic, sl_gate_ask_magic, sizeof ask->magic);
    ask->version = SL_GATE_VERSION;
    return sl_gate_packet_send(line->fd, ask, sizeof *ask, -1);
}

/* Nobody else uses it. The end of the socket would be no end where a fork has it, too. */
static void line_shut(const struct sl_client *client, struct guest_line *line)
{
    bool ours = sl_client_is_ours(client);
    struct sl_gate_ask bye = {.question = SL_GATE_BYE};
    if (ours && packet_send(line, &bye) != 0) {
        (void)shutdown(line->fd, SHUT_RDWR);
    }
    if (ours && line->window != NULL) { /* a fork has no window */
        (void)munmap(line->window, line->window_bytes);
    }
    (void)close(line->fd);
    line->window = NULL;
    line->fd = -1;
}

static void line_free(const struct sl_client *client, struct guest_line *line)
{
    if (line->fd >= 0) {
        line_shut(client, line);
    }
    if (line->pins_fd >= 0) {
        (void)close(line->pins_fd);
    }
    free(line);
}

void guest_lines_close(struct guest_lines *lines)
{
    if (lines->line != NULL) {
        line_free(lines->client, lines->line);
    }
    while (lines->past != NULL) {
        struct guest_line *line = lines->past;
        lines->past = line->next;
        line_free(lines->client, line);
    }
    if (sl_client_is_ours(lines->client)) { /* else it would wait for threads that a fork has not */
        pthread_cond_destroy(&lines->changed);
    }
    pthread_mutex_destroy(&lines->keeping);
    pthread_mutex_destroy(&lines->lock);
}

static sl_err line_open(const struct sl_client *client, uint64_t deadline_ns,
                        struct guest_line **out, struct sl_error *why)
{
    struct sl_gate_writer writer;
    struct guest_line *line = calloc(1, sizeof *line);
    if (line == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "connection to the gate");
    }
    sl_err err = sl_gate_writer_open(
        client->paths.runtime_dir,
        SL_MIN(deadline_ns, sl_deadline_ns(sl_clock_monotonic_ns(), OPEN_NS)), &writer, why);
    if (err != SL_OK) {
        free(line);
        return err;
    }
    line->pins_fd = -1;
    memcpy(line->pins, writer.pins, sizeof line->pins);
    line->fd = writer.socket_fd;
    line->window_bytes = writer.window_bytes;
    line->slot_count = writer.slot_count;
    line->slot_bytes = writer.window_bytes / writer.slot_count;
    void *at =
        mmap(NULL, line->window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer.window_fd, 0);
    (void)close(writer.window_fd);
    if (at == MAP_FAILED) {
        line_free(client, line);
        return sl_fail(why, SL_ERR_NO_MEMORY, "map the window of the gate");
    }
    (void)madvise(at, line->window_bytes, MADV_DONTFORK); /* a fork would keep its memory */
    line->window = at;
    *out = line;
    return SL_OK;
}

/* Under the lock. */
static void wait_until(struct guest_lines *lines, uint64_t until_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(until_ns / SL_NS_PER_S),
                                .tv_nsec = (long)(until_ns % SL_NS_PER_S)};
    (void)pthread_cond_timedwait(&lines->changed, &lines->lock, &at);
}

/* Under the lock. */
static void line_forget(struct guest_lines *lines, struct guest_line *line)
{
    line->gone = true;
    if (lines->line == line) {
        lines->line = NULL;
        line->next = lines->past;
        lines->past = line;
    }
    pthread_cond_broadcast(&lines->changed);
}

/* Under the lock. NULL: nothing of it is left. */
static struct guest_line *line_find(const struct guest_lines *lines, uint32_t number)
{
    if (lines->line != NULL && lines->line->number == number) {
        return lines->line;
    }
    struct guest_line *line = lines->past;
    while (line != NULL && line->number != number) {
        line = line->next;
    }
    return line;
}

/* Under the lock. Gives a past line that the caller has to free then. */
static struct guest_line *past_end(struct guest_lines *lines, struct guest_line *line)
{
    if (!line->gone || line->uses > 0) {
        return NULL;
    }
    if (line->view_count > 0) {
        if (line->fd >= 0) {
            line_shut(lines->client, line);
        }
        return NULL;
    }
    for (struct guest_line **at = &lines->past; *at != NULL; at = &(*at)->next) {
        if (*at == line) {
            *at = line->next;
            return line;
        }
    }
    return NULL;
}

sl_err guest_line_enter(struct guest_lines *lines, uint64_t deadline_ns, struct guest_line **out,
                        struct sl_error *why)
{
    sl_err err = sl_client_writes(lines->client, why);
    if (err != SL_OK) { /* a fork: a thread that it has not may hold the lock */
        return err;
    }
    pthread_mutex_lock(&lines->lock);
    while (lines->opening && err == SL_OK) {
        wait_until(lines, deadline_ns);
        if (lines->opening && sl_clock_monotonic_ns() >= deadline_ns) {
            err = sl_fail(why, SL_ERR_TIMEOUT, "the node's gate does not answer");
        }
    }
    if (err == SL_OK && lines->line == NULL && lines->count == LINES_MAX) {
        err = sl_fail(why, SL_ERR_LIMIT, "%u connections to the gate: open another client",
                      LINES_MAX);
    }
    if (err == SL_OK && lines->line == NULL) {
        struct guest_line *fresh = NULL;
        lines->opening = true;
        pthread_mutex_unlock(&lines->lock);
        err = line_open(lines->client, deadline_ns, &fresh, why);
        pthread_mutex_lock(&lines->lock);
        lines->opening = false;
        if (err == SL_OK && fresh != NULL) { /* the one goes with the other */
            fresh->number = ++lines->count;
            lines->line = fresh;
        }
        pthread_cond_broadcast(&lines->changed);
    }
    if (err == SL_OK) {
        lines->line->uses++;
        *out = lines->line;
    }
    pthread_mutex_unlock(&lines->lock);
    return err;
}

void guest_line_leave(struct guest_lines *lines, struct guest_line *line)
{
    pthread_mutex_lock(&lines->lock);
    line->uses--;
    struct guest_line *over = past_end(lines, line);
    pthread_mutex_unlock(&lines->lock);
    if (over != NULL) {
        line_free(lines->client, over);
    }
}

/* Whether the stand-in lives; one system call. */
static bool line_stands(const struct guest_line *line)
{
    struct pollfd polled = {.fd = line->fd, .events = 0};
    return line->fd >= 0 &&
           (poll(&polled, 1, 0) == 0 || (polled.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0);
}

bool guest_line_pins(struct guest_lines *lines, uint32_t number)
{
    pthread_mutex_lock(&lines->lock);
    const struct guest_line *line = line_find(lines, number);
    bool pins = line != NULL && (line_stands(line) || sl_pins_kept(line->pins_fd));
    pthread_mutex_unlock(&lines->lock);
    return pins;
}

/* Of a gate that lets nobody do this: the reading stand-in is of an earlier release. */
static bool keeps_not(sl_err err)
{
    return err == SL_ERR_PERMISSION || err == SL_ERR_UNSUPPORTED;
}

sl_err guest_line_keep(struct guest_lines *lines, struct guest_line *line, struct sl_error *why)
{
    sl_err err = SL_OK;
    int fresh = -1;
    pthread_mutex_lock(&lines->keeping);
    if (line->pins[0] != '\0' &&
        !sl_pins_kept(line->pins_fd)) { /* new, or of another life of the node */
        err = sl_pins_keep(lines->client->paths.shm_dir, line->pins, &fresh, why);
        if (keeps_not(err)) {
            line->pins[0] = '\0';
            err = SL_OK;
        }
        /* One that lives now has pinned all that we were told of, and dies with the lock in place. */
        if (err != SL_OK || !line_stands(line)) {
            err = sl_fail(why, SL_ERR_UNREACHABLE, "the node's process of this client is gone");
        }
    }
    if (fresh >= 0) {
        pthread_mutex_lock(&lines->lock);
        int old = line->pins_fd;
        line->pins_fd = fresh;
        pthread_mutex_unlock(&lines->lock);
        if (old >= 0) {
            (void)close(old);
        }
    }
    pthread_mutex_unlock(&lines->keeping);
    return err;
}

/* Under the lock: as much as the socket takes of what is over. */
static void overs_send(struct guest_line *line)
{
    while (line->drop_count > 0) {
        struct sl_gate_ask ask = {.question = SL_GATE_DROP, .a = line->drops[line->drop_count - 1]};
        if (packet_send(line, &ask) != 0) {
            return;
        }
        line->drop_count--;
    }
    for (uint32_t i = 0; i < SL_GATE_VIEWS_MAX / 64 && line->unpin_count > 0; i++) {
        while (line->unpins[i] != 0) {
            uint32_t bit = (uint32_t)__builtin_ctzll(line->unpins[i]);
            struct sl_gate_ask ask = {.question = SL_GATE_UNPIN, .a = i * 64 + bit + 1};
            if (packet_send(line, &ask) != 0) {
                return;
            }
            line->unpins[i] &= ~(UINT64_C(1) << bit);
            line->unpin_count--;
        }
    }
}

/* Whether the bit was another. */
static bool view_mark(struct guest_line *line, uint32_t view, bool held)
{
    uint64_t *word = &line->views[(view - 1) / 64];
    uint64_t bit = UINT64_C(1) << ((view - 1) % 64);
    bool other = ((*word & bit) != 0) != held;
    *word ^= other ? bit : 0;
    return other;
}

void guest_line_view(struct guest_lines *lines, struct guest_line *line, uint32_t view)
{
    pthread_mutex_lock(&lines->lock);
    line->view_count += view_mark(line, view, true);
    pthread_mutex_unlock(&lines->lock);
}

/* Under the lock. */
static void unpin_keep(struct guest_line *line, uint32_t view)
{
    if (view >= 1 && view <= SL_GATE_VIEWS_MAX) {
        uint64_t bit = UINT64_C(1) << ((view - 1) % 64);
        line->unpin_count += (line->unpins[(view - 1) / 64] & bit) == 0;
        line->unpins[(view - 1) / 64] |= bit;
    }
}

/* Under the lock. */
static void drop_keep(struct guest_line *line, uint32_t draft)
{
    if (line->drop_count < GUEST_DROPS_MAX) {
        line->drops[line->drop_count++] = draft;
    }
}

void guest_line_unpin(struct guest_lines *lines, uint32_t line, uint32_t view)
{
    struct guest_line *over = NULL;
    pthread_mutex_lock(&lines->lock);
    struct guest_line *of = line_find(lines, line);
    if (of != NULL) {
        of->view_count -= view_mark(of, view, false);
        over = past_end(lines, of);
    }
    if (of != NULL && !of->gone) {
        unpin_keep(of, view);
        overs_send(of);
    }
    pthread_mutex_unlock(&lines->lock);
    if (over != NULL) {
        line_free(lines->client, over);
    }
}

void guest_line_drop(struct guest_lines *lines, struct guest_line *line, uint32_t draft)
{
    pthread_mutex_lock(&lines->lock);
    if (!line->gone) {
        drop_keep(line, draft);
        overs_send(line);
    }
    pthread_mutex_unlock(&lines->lock);
}

/* ---- slots ---- */

static sl_err gone_fail(struct sl_error *why)
{
    return sl_fail(why, SL_ERR_UNREACHABLE,
                   "the node's process that writes for this client is gone");
}

/* Under the lock. The answer came for nobody: what it brings is over. */
static void given_up_end(struct guest_line *line, uint32_t slot)
{
    const struct guest_slot *self = &line->slots[slot];
    for (uint32_t i = 0; i < self->count; i++) {
        struct sl_gate_item item;
        memcpy(&item, guest_slot_at(line, slot) + i * sizeof item, sizeof item);
        if (item.code == SL_OK && self->question == SL_GATE_PIN) {
            unpin_keep(line, item.number);
        } else if (item.code == SL_OK && self->question == SL_GATE_DRAFT) {
            drop_keep(line, item.number);
        }
    }
}

/* Under the lock. False: it is no answer to anything that was asked. */
static bool answer_take(struct guest_line *line, const struct sl_gate_answer *answer)
{
    if (memcmp(answer->magic, sl_gate_answer_magic, sizeof answer->magic) != 0 ||
        answer->a >= line->slot_count || memchr(answer->text, '\0', sizeof answer->text) == NULL) {
        return false;
    }
    struct guest_slot *slot = &line->slots[answer->a];
    if (slot->state == GUEST_SLOT_GIVEN_UP) {
        if (answer->code == SL_OK) {
            given_up_end(line, (uint32_t)answer->a);
        }
        slot->state = GUEST_SLOT_FREE;
        return true;
    }
    if (slot->state != GUEST_SLOT_ASKED) {
        return false;
    }
    slot->code = sl_err_received(answer->code);
    memcpy(slot->text, answer->text, sizeof slot->text);
    slot->state = GUEST_SLOT_ANSWERED;
    return true;
}

/* Under the lock, which is given up meanwhile: until something may have changed, or until_ns. */
static void progress(struct guest_lines *lines, struct guest_line *line, uint64_t until_ns)
{
    struct sl_gate_answer answer = {0};
    int fd = -1;
    if (line->reading) {
        wait_until(lines, until_ns);
        return;
    }
    line->reading = true;
    pthread_mutex_unlock(&lines->lock);
    bool came = sl_door_wait(line->fd, POLLIN, -1, until_ns);
    int os_code = came ? sl_gate_packet_take(line->fd, &answer, sizeof answer, &fd) : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    pthread_mutex_lock(&lines->lock);
    line->reading = false;
    if (came && (os_code != 0 || !answer_take(line, &answer))) {
        line_forget(lines, line);
    }
    overs_send(line);
    pthread_cond_broadcast(&lines->changed);
}

sl_err guest_slot_take(struct guest_lines *lines, struct guest_line *line,
                       enum sl_gate_question question, bool waits, uint64_t deadline_ns,
                       uint32_t *slot, struct sl_error *why)
{
    bool leaves_one =
        (question == SL_GATE_PUT || question == SL_GATE_DRAFT) && line->slot_count > 1;
    sl_err err = SL_ERR_BUSY;
    pthread_mutex_lock(&lines->lock);
    while (err == SL_ERR_BUSY) {
        bool given_up = false;
        uint32_t free_count = 0;
        for (uint32_t i = 0; i < line->slot_count; i++) {
            given_up = given_up || line->slots[i].state == GUEST_SLOT_GIVEN_UP;
            if (line->slots[i].state == GUEST_SLOT_FREE) {
                free_count++;
                *slot = i;
            }
        }
        if (free_count > (leaves_one ? 1 : 0)) {
            line->slots[*slot].state = GUEST_SLOT_TAKEN;
            err = SL_OK;
        }
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (line->gone) {
            err = gone_fail(why);
        } else if (err == SL_ERR_BUSY && !waits) {
            break;
        } else if (err == SL_ERR_BUSY && now_ns >= deadline_ns) {
            err = sl_fail(why, SL_ERR_TIMEOUT, "the node's gate does not answer");
        } else if (err == SL_ERR_BUSY && given_up) {
            progress(lines, line, SL_MIN(deadline_ns, now_ns + LOOK_NS));
        } else if (err == SL_ERR_BUSY) {
            wait_until(lines, SL_MIN(deadline_ns, now_ns + LOOK_NS));
        }
    }
    pthread_mutex_unlock(&lines->lock);
    return err;
}

sl_err guest_slot_ask(struct guest_lines *lines, struct guest_line *line, uint32_t slot,
                      const struct guest_question *question, struct sl_error *why)
{
    uint64_t left_ns =
        SL_MIN(sl_budget_ns(sl_clock_monotonic_ns(), question->deadline_ns), SL_GATE_WAIT_NS_MAX);
    struct sl_gate_ask ask = {.question = question->question,
                              .a = slot | (question->at_once ? SL_GATE_AT_ONCE : 0),
                              .b = question->count,
                              .c = left_ns - SL_MIN(left_ns / 20, GUEST_MARGIN_NS)};
    int os_code = EAGAIN;
    for (;;) {
        pthread_mutex_lock(&lines->lock);
        overs_send(line);
        os_code = line->gone ? EPIPE : packet_send(line, &ask);
        bool over = os_code != EAGAIN || sl_clock_monotonic_ns() >= question->deadline_ns;
        if (over) {
            line->slots[slot] =
                (struct guest_slot){.state = os_code == 0 ? GUEST_SLOT_ASKED : GUEST_SLOT_FREE,
                                    .question = question->question,
                                    .count = question->count};
        }
        if (os_code != 0 && os_code != EAGAIN) {
            line_forget(lines, line);
        }
        pthread_mutex_unlock(&lines->lock);
        if (over) {
            break;
        }
        (void)sl_door_wait(line->fd, POLLOUT, -1, question->deadline_ns);
    }
    return os_code == 0        ? SL_OK
           : os_code == EAGAIN ? sl_fail(why, SL_ERR_TIMEOUT, "the node's gate takes no question")
                               : gone_fail(why);
}

sl_err guest_slot_wait(struct guest_lines *lines, struct guest_line *line, uint32_t slot,
                       uint64_t deadline_ns, struct sl_error *why)
{
    struct guest_slot *self = &line->slots[slot];
    sl_err err = SL_OK;
    pthread_mutex_lock(&lines->lock);
    while (self->state == GUEST_SLOT_ASKED && err == SL_OK) {
        if (line->gone) {
            err = gone_fail(why);
        } else if (sl_clock_monotonic_ns() >= deadline_ns) {
            err = sl_fail(why, SL_ERR_TIMEOUT, "the node's gate did not answer in time");
            self->state = GUEST_SLOT_GIVEN_UP;
        } else {
            progress(lines, line, deadline_ns);
        }
    }
    if (err == SL_OK) {
        self->state = GUEST_SLOT_TAKEN;
        err = self->code == SL_OK ? SL_OK : sl_fail(why, self->code, "%s", self->text);
    }
    pthread_mutex_unlock(&lines->lock);
    return err;
}

void guest_slot_free(struct guest_lines *lines, struct guest_line *line, uint32_t slot)
{
    pthread_mutex_lock(&lines->lock);
    if (line->slots[slot].state == GUEST_SLOT_TAKEN) { /* else the stand-in has it yet */
        line->slots[slot].state = GUEST_SLOT_FREE;
        pthread_cond_broadcast(&lines->changed);
    }
    pthread_mutex_unlock(&lines->lock);
}
