/* ipc/msg/sl_mailbox.c - the calls for an event loop: opening, sending, receiving and waiting. All
 * descriptors are in one epoll of the mailbox. A loop watches this descriptor, or waits inside it
 * (sl_mailbox_join). */
#include "ipc/msg/mailbox_internal.h"
#include "runtime/base/sl_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define RING_BYTES (512 * SL_KIB) /* each way */
#define EVENTS_MAX 64
/* Descriptors are polled after this number of frames, so that a busy lane does not hide the end of
 * another. */
#define FRAMES_BETWEEN_POLLS 64u
/* A sender that has not polled for this time polls first: only a descriptor shows a lane's
 * death. */
#define ASK_NS (10 * SL_NS_PER_MS)

int sl_mailbox_watch(const struct sl_mailbox *mailbox, int fd, enum sl_mailbox_tag tag,
                     uint32_t number, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.u64 = (uint64_t)tag << 32 | number}};
    return epoll_ctl(mailbox->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

sl_err sl_mailbox_peer_of(struct sl_mailbox *mailbox, const char *name,
                          struct sl_mailbox_peer **out)
{
    for (uint32_t i = 0; i < mailbox->peer_count; i++) {
        if (strcmp(mailbox->peers[i].name, name) == 0) {
            *out = &mailbox->peers[i];
            return SL_OK;
        }
    }
    if (mailbox->peer_count == SL_MAILBOX_PEERS_MAX) {
        return SL_ERR_LIMIT;
    }
    struct sl_mailbox_peer *peer = &mailbox->peers[mailbox->peer_count++];
    (void)snprintf(peer->name, sizeof(peer->name), "%s", name);
    sl_mailbox_lane_offer(mailbox, peer, sl_clock_monotonic_ns());
    *out = peer;
    return SL_OK;
}

/* ---- opening and closing ---- */

static sl_err options_check(const struct sl_mailbox_options *options, struct sl_error *why)
{
    if (!sl_actor_name_is_clean(options->name, strlen(options->name))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "mailbox name '%s' is not 1..31 letters, digits, '.', '_', '-'",
                       options->name);
    }
    if (strlen(options->runtime_dir) > SL_MAILBOX_DIRECTORY_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "runtime directory '%s' is too long for the path of a socket (%zu bytes)",
                       options->runtime_dir, SL_MAILBOX_DIRECTORY_BYTES_MAX);
    }
    if (options->message_bytes_max < 64 || options->message_bytes_max > SL_GIB) {
        return sl_fail(why, SL_ERR_INVALID, "message bound of %" PRIu64 " bytes is not in 64..2^30",
                       options->message_bytes_max);
    }
    if (!sl_queue_bytes_valid(options->ring_bytes)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ring of %" PRIu64 " bytes is not a power of two in 4 KiB..64 MiB",
                       options->ring_bytes);
    }
    if (options->lanes_max > SL_MAILBOX_LANES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%" PRIu32 " lanes are not in 0..%u",
                       options->lanes_max, SL_MAILBOX_LANES_MAX);
    }
    return SL_OK;
}

void sl_mailbox_options_from(const struct sl_config *config, struct sl_mailbox_options *options)
{
    options->message_bytes_max = sl_config_u64(config, SL_SET_message_bytes_max);
    options->ring_bytes = RING_BYTES;
    options->spin_ns = sl_config_u64(config, SL_SET_queue_spin);
}

sl_err sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                       struct sl_error *why)
{
    sl_err err = options_check(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (mailbox == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for mailbox '%s'", options->name);
    }
    (void)snprintf(mailbox->directory, sizeof(mailbox->directory), "%s", options->runtime_dir);
    (void)snprintf(mailbox->name, sizeof(mailbox->name), "%s", options->name);
    mailbox->message_bytes_max = options->message_bytes_max;
    mailbox->listen_fd = -1;
    mailbox->spare_fd = -1;
    mailbox->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = mailbox->epoll_fd < 0
              ? sl_fail_os(why, errno, "make the epoll of mailbox '%s'", mailbox->name)
              : sl_mailbox_lanes_open(mailbox, options, why);
    if (err != SL_OK) {
        sl_mailbox_close(&mailbox);
        return err;
    }
    mailbox->spare_fd = fcntl(mailbox->epoll_fd, F_DUPFD_CLOEXEC, 0);
    *out = mailbox;
    return SL_OK;
}

void sl_mailbox_close(struct sl_mailbox **mailbox)
{
    if (mailbox == NULL || *mailbox == NULL) {
        return;
    }
    struct sl_mailbox *self = *mailbox;
    sl_mailbox_lanes_close(self);
    if (self->epoll_fd >= 0) {
        (void)close(self->epoll_fd);
    }
    free(self);
    *mailbox = NULL;
}

/* Polls the descriptors, waiting wait_ns at most until one is readable. True: the loop's descriptor
 * is (sl_mailbox_join). */
static bool ask_descriptors(struct sl_mailbox *mailbox, uint64_t wait_ns)
{
    struct epoll_event events[EVENTS_MAX];
    bool of_loop = false;
    int count = sl_epoll_wait(mailbox->epoll_fd, events, EVENTS_MAX, wait_ns);
    for (int i = 0; i < count; i++) {
        enum sl_mailbox_tag tag = (enum sl_mailbox_tag)(events[i].data.u64 >> 32);
        if (tag == SL_TAG_LOOP) {
            of_loop = true;
        } else {
            sl_mailbox_lanes_event(mailbox, tag, (uint32_t)events[i].data.u64);
        }
    }
    mailbox->frames_since_poll = 0;
    mailbox->asked_at_ns = sl_clock_monotonic_ns();
    sl_mailbox_lanes_tick(mailbox, mailbox->asked_at_ns);
    return of_loop;
}

/* ---- sending ---- */

sl_err sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                       size_t length_bytes, bool reply)
{
    struct sl_mailbox_peer *peer = NULL;
    if (!sl_actor_name_is_clean(to, strlen(to)) || length_bytes > mailbox->message_bytes_max) {
        return SL_ERR_INVALID;
    }
    if (reply) {
        return sl_mailbox_lane_reply(mailbox, to, frame, length_bytes);
    }
    sl_err err = sl_mailbox_peer_of(mailbox, to, &peer);
    if (err != SL_OK) {
        return err;
    }
    if (sl_clock_monotonic_ns() - mailbox->asked_at_ns > ASK_NS) {
        (void)ask_descriptors(mailbox, 0);
    }
    return sl_mailbox_lane_request(mailbox, peer, frame, length_bytes);
}

sl_err sl_mailbox_fail(const struct sl_mailbox *mailbox, const char *to, sl_err code,
                       struct sl_error *why)
{
    for (uint32_t i = 0; why != NULL && i < mailbox->peer_count; i++) {
        const struct sl_mailbox_peer *peer = &mailbox->peers[i];
        if (strcmp(peer->name, to) == 0 && peer->lane == 0 && peer->os_code != 0) {
            (void)sl_fail_os(why, peer->os_code, "%s: no lane to it can be made", to);
            return why->code = code;
        }
    }
    return sl_fail(why, code, "%s: %s", to,
                   code == SL_ERR_BUSY ? "it has not accepted a lane yet" : sl_err_text(code));
}

/* ---- receiving ---- */

/* Takes the next frame, one lane after the other. False: there is none that is known of. */
static bool take_next(struct sl_mailbox *mailbox, const void **frame, size_t *length_bytes)
{
    /* A lane that ends here reduces the count. */
    for (uint32_t i = 0, count = mailbox->lane_count; i < count; i++) {
        uint32_t number = (mailbox->turn + i) % count;
        if (number < mailbox->lane_count &&
            sl_mailbox_lane_take(mailbox, number, frame, length_bytes)) {
            mailbox->turn = number + 1;
            return true;
        }
    }
    return false;
}

sl_err sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                          size_t *length_bytes)
{
    sl_mailbox_lanes_awake(mailbox);
    if (mailbox->frames_since_poll++ >= FRAMES_BETWEEN_POLLS) {
        (void)ask_descriptors(mailbox, 0);
    }
    bool taken = take_next(mailbox, frame, length_bytes);
    if (!taken && !mailbox->polled) {
        /* Once between two SL_ERR_NOT_FOUND: a later event wakes the loop again. */
        mailbox->polled = true;
        (void)ask_descriptors(mailbox, 0);
        taken = take_next(mailbox, frame, length_bytes);
    }
    if (!taken) {
        mailbox->polled = false;
        return SL_ERR_NOT_FOUND;
    }
    *from = mailbox->from;
    return SL_OK;
}

sl_err sl_mailbox_join(struct sl_mailbox *mailbox, int loop_fd, struct sl_error *why)
{
    return sl_mailbox_watch(mailbox, loop_fd, SL_TAG_LOOP, 0, EPOLLIN) == 0
               ? SL_OK
               : sl_fail_os(why, errno, "watch the loop of mailbox '%s'", mailbox->name);
}

bool sl_mailbox_block(struct sl_mailbox *mailbox, uint64_t wait_ns)
{
    /* A later event ends the next wait, so receiving need not poll again. */
    mailbox->polled = true;
    return ask_descriptors(mailbox, wait_ns);
}

uint64_t sl_mailbox_connect_count(const struct sl_mailbox *mailbox)
{
    return mailbox->connect_count;
}

void sl_mailbox_stats_get(const struct sl_mailbox *mailbox, struct sl_mailbox_stats *out)
{
    *out = mailbox->stats;
}

int sl_mailbox_fd(const struct sl_mailbox *mailbox)
{
    return mailbox->epoll_fd;
}
