/* client/lib/call.c - requests of a client to actors. There is no thread for them: threads that
 * wait process the mailbox.
 *
 * One thread at a time polls the mailbox's descriptors, without the lock. The others wait, each at
 * its own condition variable, until their call is done or they must take over polling. Two rules
 * prevent lost wake-ups (tests/models/calls.pml):
 * - A thread that processed the mailbox has announced to all peers that this process is awake, and
 *   may have consumed the event that the poller waits for. Before it waits or leaves it arms the
 *   mailbox again (sl_mailbox_sleep: peers ring again, and no frame is unread).
 * - A thread that leaves while none polls wakes one of those that wait, which then polls. */
#include "client/lib/deferred.h"
#include "runtime/base/sl_backoff.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS_MAX  (50 * SL_NS_PER_MS) /* longest sleep, in case a wake-up was missed */
#define RETRY_NS_MAX (20 * SL_NS_PER_MS)
/* The actor ends its work a little before our deadline, so that its answer is in time. */
#define ANSWER_MARGIN_NS_MAX (20 * SL_NS_PER_MS)
/* Time to wake up and return, so that a caller has its answer within the timeout. */
#define RETURN_MARGIN_NS_MAX (10 * SL_NS_PER_MS)
#define ABORT_NS             SL_NS_PER_S /* budget of an ABORT whose answer is not awaited */
#define PUMP_FRAMES_MAX      1024u
#define LOG_LINES_PER_S      10u
#define LOG_BYTES_MAX        (16 * SL_MIB) /* of the file and its predecessor */

uint64_t sl_client_deadline(const struct sl_client *client, uint64_t timeout_ns)
{
    uint64_t wish_ns = timeout_ns == 0 ? client->op_timeout_ns : timeout_ns;
    return sl_deadline_ns(sl_clock_monotonic_ns(),
                          wish_ns - SL_MIN(wish_ns / 50, RETURN_MARGIN_NS_MAX));
}

uint64_t sl_client_random(void)
{
    uint64_t value = 0;
    while (value == 0) {
        if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
            value = sl_clock_wall_ns() ^ ((uint64_t)getpid() << 40);
        }
    }
    return value;
}

uint64_t sl_client_op_id(struct sl_client *client)
{
    pthread_mutex_lock(&client->lock);
    /* The low half counts, the high half is random: unique among clients and restarts. */
    uint64_t id = client->next_op_id;
    client->next_op_id = (id & ~UINT64_C(0xffffffff)) | (uint32_t)(id + 1);
    pthread_mutex_unlock(&client->lock);
    return id;
}

void sl_client_sleep(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / SL_NS_PER_S),
                            .tv_nsec = (long)(ns % SL_NS_PER_S)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

sl_err sl_client_check_writable(const struct sl_client *client, struct sl_error *why)
{
    if (client->read_only) {
        return sl_fail(why, SL_ERR_PERMISSION, "this client is read-only");
    }
    if (!sl_client_is_ours(client)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "this client was opened by process %u: a fork opens its own",
                       client->self.pid);
    }
    return SL_OK;
}

/* A thread that waits while another one polls. On its stack; under the client's lock. */
struct sl_client_waiter {
    struct sl_client_waiter *next;
    const struct sl_client_call *call;
    pthread_cond_t woken;
};

static void kick(struct sl_client *client)
{
    if (client->polling) {
        uint64_t one = 1;
        ssize_t written = write(client->kick_fd, &one, sizeof one); /* full: already kicked */
        (void)written;
    }
}

/* Wakes only the threads that wait for this call. */
static void call_wake(struct sl_client *client, const struct sl_client_call *call)
{
    if (client->polled_for == call) {
        kick(client);
    }
    for (struct sl_client_waiter *waiter = client->waiters; waiter != NULL; waiter = waiter->next) {
        if (waiter->call == call) {
            pthread_cond_signal(&waiter->woken);
        }
    }
}

static void call_end(struct sl_client *client, struct sl_client_call *call)
{
    for (struct sl_client_call **at = &client->calls; *at != NULL; at = &(*at)->next) {
        if (*at == call) {
            *at = call->next;
            client->call_count--;
            break;
        }
    }
    call->next = NULL;
    call->done = true;
    if (call->op != NULL) {
        sl_client_ends_add(client, call);
    }
    call_wake(client, call);
}

static uint64_t wire_budget(uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t left = sl_budget_ns(now_ns, deadline_ns);
    return left - SL_MIN(left / 20, ANSWER_MARGIN_NS_MAX);
}

/* Encodes the message with the remaining budget and passes it to the mailbox. */
static sl_err frame_send(struct sl_client *client, const char *to, struct sl_msg *msg, uint64_t seq,
                         uint64_t budget_ns, struct sl_error *why)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    msg->sender = sl_text_of(client->name);
    msg->seq = seq;
    msg->budget_ns = SL_MAX(budget_ns, 1);
    sl_err err = sl_codec_encode(client->codec, msg, &frame, &length_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    err = sl_mailbox_send(client->mailbox, to, frame, length_bytes, false);
    return err == SL_OK ? SL_OK : sl_mailbox_fail(client->mailbox, to, err, why);
}

/* Aborts a RESERVE whose grants would not be filled. The ABORT follows the request at once: if that
 * was granted, or is still unread at a stopped registrar, this frees its keys. If it is lost, it is
 * sent again when the grants arrive, or the reservations end by their time. */
static void give_up(struct sl_client *client, const struct sl_client_call *call)
{
    if (call->msg.type == SL_MSG_RESERVE && call->ever_sent) {
        struct sl_msg abort = {
            .type = SL_MSG_ABORT, .op_id = call->msg.op_id, .trace_id = call->msg.trace_id};
        client->given_up[client->given_up_next++ % SL_CLIENT_GIVEN_UP_MAX] = call->seq;
        (void)frame_send(client, call->to, &abort, client->next_seq++, ABORT_NS, NULL);
    }
}

/* Sends or resends. It is repeated if the peer is absent or its queue full; a message that cannot
 * be encoded ends the call. */
static void call_send(struct sl_client *client, struct sl_client_call *call, uint64_t now_ns)
{
    sl_err err = frame_send(client, call->to, &call->msg, call->seq,
                            wire_budget(now_ns, call->deadline_ns), &call->why);
    if (err == SL_OK) {
        call->sent_again = call->ever_sent;
        if (!call->ever_sent) {
            call->connects = sl_mailbox_connect_count(client->mailbox);
        }
        call->ever_sent = true;
        call->retry_ns = SL_RESEND_REFUSED_NS;
        call->next_send_ns = now_ns + client->call_retry_ns;
    } else if (sl_err_class(err) == SL_CLASS_RETRY && err != SL_ERR_NO_MEMORY) {
        call->next_send_ns = now_ns + (call->ever_sent /* the peer may not have read it yet */
                                           ? client->call_retry_ns
                                           : sl_backoff_next(&call->retry_ns, RETRY_NS_MAX));
    } else {
        call->code = err;
        call_end(client, call);
    }
}

/* The log file of all clients, beside the actors' logs. NULL: the node has no logs. */
static struct sl_log *log_of(struct sl_client *client)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/clients.jsonl", client->paths.log_dir);
    const struct sl_log_options options = {.path = path,
                                           .actor = client->name,
                                           .level = client->debugs ? SL_LOG_DEBUG : SL_LOG_WARN,
                                           .lines_per_s = LOG_LINES_PER_S,
                                           .bytes_max = LOG_BYTES_MAX};
    if (client->log == NULL && sl_log_open(&options, &client->log, NULL) != SL_OK) {
        return NULL;
    }
    return client->log;
}

/* Logs a timeout, which callers may only count; the actor's log has the other side. */
static void timeout_log(struct sl_client *client, const struct sl_client_call *call)
{
    struct sl_log *log = log_of(client);
    if (log == NULL) {
        return;
    }
    uint64_t waited_ns = sl_clock_monotonic_ns() - call->began_ns;
    sl_log_write(log, SL_LOG_WARN, call->msg.trace_id,
                 "%s %" PRIu64 ": %s after %" PRIu64 " ms (sent: %s, calls in flight: %u)",
                 sl_msg_name(call->msg.type), call->seq, call->why.text, waited_ns / SL_NS_PER_MS,
                 call->ever_sent ? "yes" : "no", client->call_count);
}

static void call_expired(struct sl_client *client, struct sl_client_call *call)
{
    if (call->ever_sent) {
        call->code = sl_fail(&call->why, SL_ERR_TIMEOUT, "%s did not answer %s in time", call->to,
                             sl_msg_name(call->msg.type));
    } else if (call->why.code == SL_OK || call->why.code == SL_ERR_UNREACHABLE) {
        call->code = sl_fail(&call->why, SL_ERR_UNREACHABLE, "%s is not reachable", call->to);
    } else { /* SL_ERR_BUSY or SL_ERR_LIMIT of a put or a get would refer to its key */
        call->code = call->why.code = SL_ERR_UNREACHABLE;
    }
    timeout_log(client, call);
    give_up(client, call);
    call_end(client, call);
}

/* Handles the answer to an abandoned RESERVE: its grants are returned at once and again with the
 * next call, whose answer is awaited. */
static void late_grants(struct sl_client *client, const struct sl_msg *reply)
{
    bool known = false;
    uint32_t first = client->orphan_count;
    for (uint32_t i = 0; i < SL_CLIENT_GIVEN_UP_MAX && !known; i++) {
        known = client->given_up[i] == reply->reply_to;
        if (known) {
            client->given_up[i] = 0;
        }
    }
    for (uint64_t i = 0; known && i < reply->body.reserve_reply.items.count; i++) {
        const struct sl_item_grant *grant = &reply->body.reserve_reply.items.at[i];
        if (grant->code == SL_OK && grant->ref != 0 &&
            client->orphan_count < SL_CLIENT_ORPHANS_MAX) {
            client->orphans[client->orphan_count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
    if (client->orphan_count > first) {
        struct sl_msg abort = {.type = SL_MSG_ABORT};
        abort.body.abort.items.at = &client->orphans[first];
        abort.body.abort.items.count = client->orphan_count - first;
        (void)frame_send(client, "registrar", &abort, client->next_seq++, ABORT_NS, NULL);
    }
}

static void dispatch(struct sl_client *client, const char *from, const struct sl_msg *reply)
{
    struct sl_client_call *call = client->calls;
    while (call != NULL && (call->seq != reply->reply_to || call->msg.type + 1 != reply->type ||
                            strcmp(call->to, from) != 0)) {
        call = call->next;
    }
    if (call == NULL) {
        if (client->stray != NULL) {
            client->stray(client->stray_context, from, reply);
        }
        if (reply->type == SL_MSG_RESERVE_REPLY && reply->code == SL_OK && reply->reply_to != 0) {
            late_grants(client, reply);
        }
        return;
    }
    if (reply->code == SL_ERR_DRAINING) { /* its successor will handle the request */
        call->next_send_ns = sl_clock_monotonic_ns() + SL_RESEND_DRAINING_NS;
        return;
    }
    call->code = reply->code;
    if (reply->code == SL_ERR_UNREACHABLE && strcmp(from, "registrar") == 0) {
        call->unknown = true; /* not the registrar that we greeted */
        client->greeted_generation = 0;
    }
    if (reply->code != SL_OK) {
        bool worded = reply->text.length > 0 && reply->text.at != NULL;
        (void)sl_fail(&call->why, reply->code, "%s",
                      worded ? reply->text.at : sl_err_text(reply->code));
        if (reply->code == SL_ERR_TIMEOUT) {
            timeout_log(client, call);
        }
    }
    if (call->answered != NULL) {
        call->answered(call->context, reply);
    }
    call_end(client, call);
}

/* An answer in an unknown version still ends the call, since waiting brings no other. Its text
 * points into why, which must live as long as the reply. */
static bool reply_read(struct sl_client *client, const void *frame, size_t length_bytes,
                       struct sl_msg *reply, struct sl_error *why)
{
    *reply = (struct sl_msg){0};
    sl_err err = sl_codec_decode(client->codec, frame, length_bytes, reply, why);
    if (err == SL_ERR_VERSION) {
        reply->code = err;
        reply->text = sl_text_of(why->text);
        err = SL_OK;
    }
    return err == SL_OK && SL_MSG_IS_REPLY(reply->type);
}

/* Receives what arrived, resends what is due, ends what has expired. True: maybe more. */
static bool pump(struct sl_client *client)
{
    uint32_t taken = 0;
    const char *from = NULL;
    const void *frame = NULL;
    size_t length_bytes = 0;
    /* Bounded, so that a peer that never stops sending does not delay deadlines. */
    while (taken < PUMP_FRAMES_MAX &&
           sl_mailbox_receive(client->mailbox, &from, &frame, &length_bytes) == SL_OK) {
        struct sl_msg reply;
        struct sl_error why = {0};
        taken++;
        if (reply_read(client, frame, length_bytes, &reply, &why)) {
            dispatch(client, from, &reply);
        }
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    struct sl_client_call *next = NULL;
    for (struct sl_client_call *call = client->calls; call != NULL; call = next) {
        next = call->next;
        if (now_ns >= call->deadline_ns) {
            call_expired(client, call);
        } else if (now_ns >= call->next_send_ns && !call->silenced) {
            call_send(client, call, now_ns);
        }
    }
    return taken == PUMP_FRAMES_MAX;
}

static uint64_t next_due(const struct sl_client *client, uint64_t until_ns)
{
    uint64_t due_ns = until_ns;
    for (const struct sl_client_call *call = client->calls; call != NULL; call = call->next) {
        due_ns = SL_MIN(due_ns, call->deadline_ns);
        if (!call->silenced) {
            due_ns = SL_MIN(due_ns, call->next_send_ns);
        }
    }
    return due_ns;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SL_NS_PER_S),
                             .tv_nsec = (long)(ns % SL_NS_PER_S)};
}

/* Waits at a condition variable while another thread polls. The mailbox is armed. */
static void wait_for_poller(struct sl_client *client, const struct sl_client_call *call,
                            uint64_t due_ns)
{
    struct sl_client_waiter self = {.next = client->waiters, .call = call};
    struct timespec at = timespec_of(due_ns);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self.woken, &attributes);
    pthread_condattr_destroy(&attributes);
    /* cppcheck-suppress autoVariables ; it leaves the list before this function returns */
    client->waiters = &self;
    pthread_cond_timedwait(&self.woken, &client->lock, &at);
    struct sl_client_waiter **link = &client->waiters;
    while (*link != &self) {
        link = &(*link)->next;
    }
    *link = self.next;
    pthread_cond_destroy(&self.woken);
}

/* Waits for the descriptors, without the lock. The mailbox is armed. */
static void poll_once(struct sl_client *client, const struct sl_client_call *call, uint64_t now_ns,
                      uint64_t due_ns)
{
    struct pollfd polled[] = {{.fd = sl_mailbox_fd(client->mailbox), .events = POLLIN},
                              {.fd = client->kick_fd, .events = POLLIN}};
    struct timespec left = timespec_of(sl_budget_ns(now_ns, due_ns));
    client->polling = true;
    client->polled_for = call;
    client->polled_until_ns = due_ns;
    pthread_mutex_unlock(&client->lock);
    int ready = ppoll(polled, SL_COUNT(polled), &left, NULL);
    pthread_mutex_lock(&client->lock);
    client->polling = false;
    client->polled_for = NULL;
    for (struct sl_client_call *waiting = client->calls; ready > 0 && waiting != NULL;
         waiting = waiting->next) {
        if (!waiting->ever_sent) { /* its connection may be open now */
            waiting->next_send_ns = 0;
            waiting->retry_ns = SL_RESEND_REFUSED_NS;
        }
    }
    if (ready > 0 && (polled[1].revents & POLLIN) != 0) {
        uint64_t kicks;
        ssize_t taken = read(client->kick_fd, &kicks, sizeof kicks);
        (void)taken;
    }
}

/* Sleeps until something may have arrived or is due. Releases the lock meanwhile. */
static void sleep_once(struct sl_client *client, const struct sl_client_call *call,
                       uint64_t until_ns)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint64_t due_ns = SL_MIN(next_due(client, until_ns), now_ns + POLL_NS_MAX);
    /* Spins under the lock, but only while no other thread has a call. */
    if (!client->polling && client->call_count == 1 && sl_mailbox_spin(client->mailbox, due_ns)) {
        return;
    }
    due_ns = SL_MIN(due_ns, sl_mailbox_sleep(client->mailbox, now_ns));
    if (due_ns == 0) {
        return; /* a frame has arrived */
    }
    if (client->polling) {
        wait_for_poller(client, call, due_ns);
    } else {
        poll_once(client, call, now_ns, due_ns);
    }
}

/* The mailbox was used while another thread may poll its descriptors. It is armed again for that
 * thread, which is woken only if it would sleep too long. The same holds for the descriptor of
 * ended ops, as long as calls in flight may end. */
static void poller_rearm_mailbox(struct sl_client *client)
{
    bool outside = client->ends != NULL && client->call_count > 0;
    if (!client->polling && !outside) {
        return; /* the next thread that waits checks before it sleeps */
    }
    uint64_t due_ns = sl_mailbox_sleep(client->mailbox, sl_clock_monotonic_ns());
    due_ns = SL_MIN(due_ns, next_due(client, SL_NEVER_NS));
    if (client->polling && due_ns < client->polled_until_ns) {
        kick(client);
    }
    if (outside) {
        sl_client_ends_wake_at(client, due_ns);
    }
}

bool sl_client_pump(struct sl_client *client)
{
    return pump(client);
}

void sl_client_rearm_mailbox(struct sl_client *client)
{
    poller_rearm_mailbox(client);
}

/* Ensures that a thread polls as long as any waits. */
static void poller_hand_over(struct sl_client *client)
{
    if (!client->polling && client->waiters != NULL) {
        pthread_cond_signal(&client->waiters->woken);
    }
}

sl_err sl_client_call_start(struct sl_client *client, struct sl_client_call *call,
                            struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&client->lock);
    if (client->call_count >= SL_CLIENT_CALLS_MAX) {
        pthread_mutex_unlock(&client->lock);
        return sl_fail(why, SL_ERR_LIMIT, "%u requests are in flight", SL_CLIENT_CALLS_MAX);
    }
    call->seq = client->next_seq++;
    call->began_ns = sl_clock_monotonic_ns();
    call->retry_ns = SL_RESEND_REFUSED_NS;
    call->done = false;
    call->code = SL_OK;
    call->next = client->calls;
    client->calls = call;
    client->call_count++;
    call_send(client, call, call->began_ns);
    poller_rearm_mailbox(client);
    if (call->done && call->code != SL_OK && sl_err_class(call->code) == SL_CLASS_CALL &&
        !call->ever_sent) {
        err = call->code; /* could not be encoded */
        sl_client_ends_forget(client, call);
        if (why != NULL) {
            *why = call->why;
        }
    }
    pthread_mutex_unlock(&client->lock);
    return err;
}

bool sl_client_call_wait(struct sl_client *client, struct sl_client_call *call, uint64_t until_ns)
{
    bool pumped = false;
    pthread_mutex_lock(&client->lock);
    while (!call->done) {
        bool more = pump(client);
        pumped = true;
        if (call->done || sl_clock_monotonic_ns() >= until_ns) {
            break;
        }
        if (!more) {
            sleep_once(client, call, until_ns);
            pumped = false;
        }
    }
    bool done = call->done;
    if (pumped) {
        poller_rearm_mailbox(client);
    }
    poller_hand_over(client);
    pthread_mutex_unlock(&client->lock);
    return done;
}

void sl_client_call_drop(struct sl_client *client, struct sl_client_call *call)
{
    pthread_mutex_lock(&client->lock);
    if (!call->done) {
        give_up(client, call);
        call->code = SL_ERR_CANCELLED;
        call_end(client, call);
    }
    pthread_mutex_unlock(&client->lock);
}

void sl_client_text_take(char *to, size_t to_bytes, const struct sl_text *from)
{
    uint64_t length = SL_MIN(from->length, (uint64_t)to_bytes - 1);
    if (length > 0) {
        memcpy(to, from->at, length);
    }
    to[length] = '\0';
}

sl_err sl_client_keys_check(const char *what, const struct sl_object_key *keys, uint32_t count,
                            struct sl_error *why)
{
    if (count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%s: %u keys, at most %d", what, count, SL_BATCH_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].at == NULL || keys[i].length == 0 || keys[i].length > SL_KEY_BYTES_MAX) {
            return sl_fail(why, SL_ERR_INVALID, "%s: key %u has %u bytes", what, i, keys[i].length);
        }
    }
    return SL_OK;
}

uint32_t sl_client_keys_share(const struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, struct sl_text *texts)
{
    uint64_t bytes = SL_KEYS_ENVELOPE_BYTES;
    uint32_t share = 0;
    while (share < count) {
        bytes += keys[share].length + SL_KEY_FRAME_BYTES;
        if (share > 0 && bytes > client->message_bytes_max) {
            break;
        }
        texts[share] = (struct sl_text){.at = keys[share].at, .length = keys[share].length};
        share++;
    }
    return share;
}

sl_err sl_client_call(struct sl_client *client, struct sl_client_call *call, struct sl_error *why)
{
    sl_err err = sl_client_call_start(client, call, why);
    if (err != SL_OK) {
        return err;
    }
    /* The call ends by its own deadline. */
    while (!sl_client_call_wait(client, call, call->deadline_ns)) {
    }
    if (call->code != SL_OK && why != NULL) {
        *why = call->why;
    }
    return call->code;
}

bool sl_client_send(struct sl_client *client, const char *to, struct sl_msg *msg,
                    uint64_t budget_ns)
{
    pthread_mutex_lock(&client->lock);
    bool sent = frame_send(client, to, msg, client->next_seq++, budget_ns, NULL) == SL_OK;
    (void)pump(client); /* the next waiter handles the rest */
    poller_rearm_mailbox(client);
    pthread_mutex_unlock(&client->lock);
    return sent;
}

void sl_client_orphan(struct sl_client *client, const struct sl_item_claim *claims, uint32_t count)
{
    pthread_mutex_lock(&client->lock);
    uint32_t room = SL_CLIENT_ORPHANS_MAX - client->orphan_count;
    uint32_t kept = SL_MIN(room, count);
    if (kept > 0) {
        memcpy(&client->orphans[client->orphan_count], claims, kept * sizeof *claims);
        client->orphan_count += kept;
    }
    pthread_mutex_unlock(&client->lock);
}

/* ---- hello ---- */

/* Records the answer of a registrar that knows us. */
static void hello_answered(void *context, const struct sl_msg *reply)
{
    if (reply->code == SL_OK) {
        *(struct sl_body_hello_reply *)context = reply->body.hello_reply;
    }
}

/* Returns reserves that no call will fill. Unanswered, it is repeated with the next call. */
static void orphans_abort(struct sl_client *client, uint64_t deadline_ns)
{
    pthread_mutex_lock(&client->lock);
    uint32_t count = client->orphan_count;
    struct sl_item_claim *claims = count == 0 ? NULL : malloc(count * sizeof *claims);
    if (claims != NULL) {
        memcpy(claims, client->orphans, count * sizeof *claims);
    }
    pthread_mutex_unlock(&client->lock);
    if (claims == NULL) {
        return;
    }
    struct sl_client_call call = {.to = "registrar", .deadline_ns = deadline_ns};
    call.msg.type = SL_MSG_ABORT;
    call.msg.body.abort.items.at = claims;
    call.msg.body.abort.items.count = count;
    if (sl_client_call(client, &call, NULL) == SL_OK) {
        pthread_mutex_lock(&client->lock);
        /* Other threads may have appended to the list, or removed these already. */
        if (client->orphan_count >= count &&
            memcmp(client->orphans, claims, count * sizeof *claims) == 0) {
            client->orphan_count -= count;
            memmove(client->orphans, &client->orphans[count],
                    client->orphan_count * sizeof *claims);
        }
        pthread_mutex_unlock(&client->lock);
    }
    free(claims);
}

sl_err sl_client_hello(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why);
    if (err == SL_OK) {
        err = sl_client_reattach(client, true, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (atomic_load_explicit(&client->deferred_count, memory_order_relaxed) != 0) {
        sl_client_deferred_settle(client);
    }
    struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(client);
    struct sl_arena *arena = atomic_load_explicit(&at->arenas[0], memory_order_acquire);
    uint64_t boot_generation = arena == NULL ? 0 : sl_arena_boot_generation(arena);
    uint32_t number = at->number;
    bool is_cut = sl_attachment_is_cut(at);
    sl_reader_leave(reader);
    if (is_cut) {
        return sl_client_fail_truncated(client, why);
    }
    pthread_mutex_lock(&client->lock);
    bool known = client->greeted_generation != 0 && client->greeted_generation == boot_generation &&
                 client->greeted_attachment == number;
    bool orphans = client->orphan_count != 0;
    pthread_mutex_unlock(&client->lock);
    if (!known) {
        char segment[SL_PINS_NAME_BYTES];
        sl_pins_name(client->name, segment);
        struct sl_body_hello_reply answered = {0};
        struct sl_client_call call = {.to = "registrar",
                                      .deadline_ns = deadline_ns,
                                      .answered = hello_answered,
                                      .context = &answered};
        call.msg.type = SL_MSG_HELLO;
        call.msg.body.hello.role = sl_text_of("client");
        call.msg.body.hello.name = sl_text_of(client->name);
        call.msg.body.hello.pid = client->self.pid;
        call.msg.body.hello.start_time = client->self.start_time;
        call.msg.body.hello.segment = sl_text_of(segment);
        err = sl_client_call(client, &call, why);
        if (err == SL_OK) {
            err = sl_client_contribute_again(client, deadline_ns, why);
        }
        if (err != SL_OK) {
            return err;
        }
        pthread_mutex_lock(&client->lock);
        client->apart = answered.pid_space != sl_proc_pid_namespace();
        client->greeted_generation = answered.boot_generation;
        client->greeted_attachment = number;
        pthread_mutex_unlock(&client->lock);
    }
    if (orphans) {
        orphans_abort(client, deadline_ns);
    }
    if (known && sl_clock_monotonic_ns() >=
                     atomic_load_explicit(&client->contribute_again_ns, memory_order_relaxed)) {
        err = sl_client_contribute_again(client, deadline_ns, why);
    }
    return err;
}

sl_err sl_client_call_registrar(struct sl_client *client, struct sl_client_call *call,
                                struct sl_error *why)
{
    sl_err err = SL_OK;
    call->to = "registrar";
    do { /* again if the node was replaced in between: nothing was done then */
        call->unknown = false;
        err = sl_client_hello(client, call->deadline_ns, why);
        err = err == SL_OK ? sl_client_call(client, call, why) : err;
    } while (call->unknown && sl_clock_monotonic_ns() < call->deadline_ns);
    return err;
}
