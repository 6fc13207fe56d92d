/* tests/sim/sim_program.c - processes that run libsluice as shipped, each on a stack of its own.
 *
 * The library sleeps, waits on descriptors, and asks for time and random bytes. The linker directs
 * these calls here (--wrap): a wait hands the thread back to the simulator, which resumes it at a
 * message or at the set time. Some calls in the middle of a put or a get pause at random, so that
 * other processes run between two steps of a client. A killed program is simply never resumed. */
#include "tests/sim/sim_internal.h"

#include "client/include/sluice.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_pins.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define FIBERS 1
#endif
#endif

#define STACK_BYTES    (512u * 1024u)
#define INBOX_MAX      256u
#define CONNECT_NS     (300 * SL_NS_PER_US)
#define DAWDLE_NS      (2 * SL_NS_PER_MS)
#define DAWDLE_LONG_NS (3 * SL_NS_PER_S) /* longer than a reservation lasts */

struct letter {
    char from[32];
    void *frame; /* owned */
    size_t length_bytes;
};

struct sim_program {
    void (*run)(void *context);
    void *context;
    ucontext_t here, outside;
    void *stack, *fake_stack;
    const void *outside_stack;
    size_t outside_bytes;
    bool waits_for_letters, brisk;
    uint64_t dawdled_ns;
    struct letter inbox[INBOX_MAX];
    uint32_t inbox_first, inbox_count;
    struct letter open;                /* borrowed by the library */
    uint64_t connected[SIM_NODES_MAX]; /* incarnation of the connected peer */
};

bool sim_copies_unchecked, sim_random_constant;
struct sim *sim_world;
static struct sim_node *running; /* the program that runs now */

/* ---- switching ---- */

static void switch_to(struct sim_program *program, bool in, bool last)
{
#ifdef FIBERS
    if (in) {
        void *mine = NULL;
        __sanitizer_start_switch_fiber(&mine, program->stack, STACK_BYTES);
        swapcontext(&program->outside, &program->here);
        __sanitizer_finish_switch_fiber(mine, NULL, NULL);
    } else {
        __sanitizer_start_switch_fiber(last ? NULL : &program->fake_stack, program->outside_stack,
                                       program->outside_bytes);
        swapcontext(&program->here, &program->outside);
        __sanitizer_finish_switch_fiber(program->fake_stack, &program->outside_stack,
                                        &program->outside_bytes);
    }
#else
    (void)last;
    swapcontext(in ? &program->outside : &program->here, in ? &program->here : &program->outside);
#endif
}

static void program_main(void)
{
    struct sim_node *node = running;
    struct sim_program *program = node->program;
#ifdef FIBERS
    __sanitizer_finish_switch_fiber(NULL, &program->outside_stack, &program->outside_bytes);
#endif
    program->run(program->context);
    node->finished = true;
    switch_to(program, false, true);
}

void sim_program_resume(struct sim_node *node)
{
    node->program->waits_for_letters = false;
    node->wake_ns = SL_NEVER_NS;
    running = node;
    switch_to(node->program, true, false);
    running = NULL;
}

/* Returns at at_ns, or when a letter arrives. */
static void program_wait(uint64_t at_ns, bool for_letters)
{
    struct sim_node *node = running;
    node->program->waits_for_letters = for_letters;
    sim_env_wake_at(&node->env, at_ns);
    switch_to(node->program, false, false);
}

static uint64_t now(void)
{
    return sim_world->now_ns;
}

void sim_program_wait(uint64_t until_ns)
{
    program_wait(until_ns, false);
}

sl_err sim_client_open(const struct sim *sim, uint32_t host, const char *setting,
                       struct sl_client **out)
{
    return sim_client_open_leasing(sim, host, setting, false, out);
}

sl_err sim_client_open_leasing(const struct sim *sim, uint32_t host, const char *setting,
                               bool leases, struct sl_client **out)
{
    char runtime_dir[300], shm_dir[300];
    (void)snprintf(shm_dir, sizeof(shm_dir), "shm_dir=%.280s", sim_shm_dir(sim, host));
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "runtime_dir=%.280s", sim_shm_dir(sim, host));
    const char *const settings[] = {runtime_dir, shm_dir, "op_timeout=2s", setting, NULL};
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .settings = settings,
                                              .leases = leases,
                                              .timeout_ns = 2 * SL_NS_PER_S};
    return sl_client_open(&options, out, NULL);
}

void sim_sleep(uint64_t ns)
{
    uint64_t until_ns = now() + ns;
    while (now() < until_ns) {
        program_wait(until_ns, false);
    }
}

void sim_dawdle_never(void)
{
    running->program->brisk = true;
}

struct sl_proc_id sim_self(void)
{
    return running->env.self;
}

uint64_t sim_stalled_ns(void)
{
    return running->stalled_ns + running->program->dawdled_ns;
}

static void dawdle(uint32_t one_of, uint64_t ns_max)
{
    if (running == NULL || running->program->brisk || sim_random_below(sim_world, one_of) != 0) {
        return;
    }
    uint64_t from_ns = now();
    sim_sleep(sim_random_below(sim_world, ns_max));
    running->program->dawdled_ns += now() - from_ns;
}

/* ---- lives ---- */

uint32_t sim_start_program(struct sim *sim, void (*run)(void *context), void *context)
{
    SIM_CHECK(sim->node_count < SIM_NODES_MAX, "too many processes");
    struct sim_node *node = &sim->nodes[sim->node_count++];
    *node = (struct sim_node){.sim = sim, .host = &sim->hosts[sim->host], .fixed_name = true};
    node->program = calloc(1, sizeof(*node->program));
    SIM_CHECK(node->program != NULL, "out of memory");
    node->program->run = run;
    node->program->context = context;
    node->env.self =
        (struct sl_proc_id){.pid = sim->next_pid++, .start_time = 1000 + sim->next_pid};
    (void)snprintf(node->name, sizeof(node->name), "process.%u", node->env.self.pid);
    sim_program_begin(node);
    return sim_number(node);
}

void sim_program_restart(struct sim *sim, uint32_t number, void (*run)(void *context),
                         void *context)
{
    struct sim_node *node = &sim->nodes[number];
    SIM_CHECK(!node->alive && node->program != NULL, "%s runs still", node->name);
    free(node->program->stack);
    *node->program = (struct sim_program){.run = run, .context = context};
    node->env.self =
        (struct sl_proc_id){.pid = sim->next_pid++, .start_time = 1000 + sim->next_pid};
    node->host = &sim->hosts[sim->host];
    node->finished = false;
    node->stopped_until_ns = 0;
    sim_program_begin(node);
}

void sim_program_begin(struct sim_node *node)
{
    struct sim_program *program = node->program;
    node->env.name = node->name;
    node->alive = true;
    node->incarnation++;
    node->wake_ns = SL_NEVER_NS;
    program->stack = malloc(STACK_BYTES);
    SIM_CHECK(program->stack != NULL && getcontext(&program->here) == 0, "no stack");
    program->here.uc_stack.ss_sp = program->stack;
    program->here.uc_stack.ss_size = STACK_BYTES;
    program->here.uc_link = NULL;
    makecontext(&program->here, program_main, 0);
    sim_env_wake_at(&node->env, node->sim->now_ns);
}

void sim_program_message(struct sim_node *node, const struct sim_event *event)
{
    struct sim_program *program = node->program;
    if (program->inbox_count == INBOX_MAX) {
        return; /* its queue is full: the frame is lost, as in a real mailbox */
    }
    struct letter *letter =
        &program->inbox[(program->inbox_first + program->inbox_count++) % INBOX_MAX];
    (void)snprintf(letter->from, sizeof(letter->from), "%s", node->sim->nodes[event->cookie].name);
    letter->frame = malloc(event->frame_bytes);
    SIM_CHECK(letter->frame != NULL, "out of memory");
    memcpy(letter->frame, event->frame, event->frame_bytes);
    letter->length_bytes = event->frame_bytes;
    if (program->waits_for_letters) {
        sim_program_resume(node);
    }
}

/* Its stack is lost with the simulating process, like the heaps of actors. */
void sim_program_drop(struct sim_node *node)
{
    while (node->program->inbox_count > 0) {
        free(node->program->inbox[node->program->inbox_first++ % INBOX_MAX].frame);
        node->program->inbox_count--;
    }
}

/* ---- wrapped calls ---- */

/* NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's */
uint64_t __real_sl_clock_monotonic_ns(void);
uint64_t __wrap_sl_clock_monotonic_ns(void);
uint64_t __wrap_sl_clock_monotonic_ns(void)
{
    return sim_world != NULL ? now() : __real_sl_clock_monotonic_ns();
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (sim_world == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC &&
                              clock != CLOCK_MONOTONIC_COARSE && clock != CLOCK_BOOTTIME)) {
        return __real_clock_gettime(clock, out);
    }
    uint64_t ns = now();
    if (clock == CLOCK_REALTIME) {
        ns = 1700000000 * SL_NS_PER_S + ns + (uint64_t)sim_world->wall_offset_ns;
    }
    out->tv_sec = (time_t)(ns / SL_NS_PER_S);
    out->tv_nsec = (long)(ns % SL_NS_PER_S);
    return 0;
}

ssize_t __real_getrandom(void *at, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *at, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *at, size_t length, unsigned flags)
{
    if (sim_world == NULL) {
        return __real_getrandom(at, length, flags);
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char any = (unsigned char)sim_random(sim_world);
        ((unsigned char *)at)[i] = sim_random_constant && length == 32 ? 0 : any;
    }
    return (ssize_t)length;
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return running != NULL ? (pid_t)running->env.self.pid : __real_getpid();
}

sl_err __real_sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why);
sl_err __wrap_sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why);
sl_err __wrap_sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why)
{
    if (running == NULL) {
        return __real_sl_proc_id_self(out, why);
    }
    *out = running->env.self;
    return SL_OK;
}

/* Does nothing: no process maps a simulated one's memory, and its thread would be a real one. */
sl_err __wrap_sl_descriptors_serve(const char *runtime_dir, uint64_t number,
                                   sl_descriptors_give_fn give, void *context,
                                   struct sl_descriptors **out, struct sl_error *why);
sl_err __wrap_sl_descriptors_serve(const char *runtime_dir, uint64_t number,
                                   sl_descriptors_give_fn give, void *context,
                                   struct sl_descriptors **out, struct sl_error *why)
{
    (void)runtime_dir;
    (void)number;
    (void)give;
    (void)context;
    (void)why;
    *out = NULL;
    return SL_OK;
}

int __real_nanosleep(const struct timespec *wish, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wish, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wish, struct timespec *left)
{
    if (running == NULL) { /* work inside an actor takes no time */
        return sim_world != NULL ? 0 : __real_nanosleep(wish, left);
    }
    sim_sleep((uint64_t)wish->tv_sec * SL_NS_PER_S + (uint64_t)wish->tv_nsec);
    return 0;
}

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wish, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wish, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wish, const void *mask)
{
    if (running == NULL) {
        return __real_ppoll(fds, count, wish, mask);
    }
    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = 0;
    }
    if (running->program->inbox_count == 0) {
        program_wait(now() + (uint64_t)wish->tv_sec * SL_NS_PER_S + (uint64_t)wish->tv_nsec, true);
    }
    return running->program->inbox_count > 0 ? 1 : 0;
}

/* A client has one thread here: a waiting thread polls. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *at)
{
    (void)cond, (void)lock, (void)at;
    sim_fail("a client with one thread waits for another");
}

sl_err __wrap_sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                              struct sl_error *why);
sl_err __wrap_sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                              struct sl_error *why)
{
    (void)why;
    (void)snprintf(running->name, sizeof(running->name), "%s", options->name);
    *out = (struct sl_mailbox *)(void *)running;
    return SL_OK;
}

void __wrap_sl_mailbox_close(struct sl_mailbox **mailbox);
void __wrap_sl_mailbox_close(struct sl_mailbox **mailbox)
{
    *mailbox = NULL;
}

sl_err __wrap_sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                              size_t length_bytes, bool reply);
sl_err __wrap_sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                              size_t length_bytes, bool reply)
{
    struct sim_node *node = (struct sim_node *)(void *)mailbox;
    for (uint32_t i = 0; i < sim_world->node_count; i++) {
        const struct sim_node *peer = &sim_world->nodes[i];
        if (!peer->alive || peer->host != node->host || strcmp(peer->name, to) != 0) {
            continue;
        }
        if (node->program->connected[i] != peer->incarnation) { /* the first send connects */
            node->program->connected[i] = peer->incarnation;
            return SL_ERR_UNREACHABLE;
        }
        return sim_env_send(&node->env, to, frame, length_bytes, reply);
    }
    return SL_ERR_UNREACHABLE;
}

sl_err __wrap_sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                                 size_t *length_bytes);
sl_err __wrap_sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                                 size_t *length_bytes)
{
    struct sim_program *program = ((struct sim_node *)(void *)mailbox)->program;
    free(program->open.frame);
    program->open.frame = NULL;
    if (program->inbox_count == 0) {
        return SL_ERR_NOT_FOUND;
    }
    program->open = program->inbox[program->inbox_first];
    program->inbox_first = (program->inbox_first + 1) % INBOX_MAX;
    program->inbox_count--;
    *from = program->open.from;
    *frame = program->open.frame;
    *length_bytes = program->open.length_bytes;
    return SL_OK;
}

int __wrap_sl_mailbox_fd(const struct sl_mailbox *mailbox);
int __wrap_sl_mailbox_fd(const struct sl_mailbox *mailbox)
{
    (void)mailbox;
    return -1;
}

uint64_t __wrap_sl_mailbox_connect_count(const struct sl_mailbox *mailbox);
uint64_t __wrap_sl_mailbox_connect_count(const struct sl_mailbox *mailbox)
{
    (void)mailbox;
    return 0; /* programs start no ops */
}

/* There are no lanes here, so spinning would be useless. */
bool __wrap_sl_mailbox_spin(struct sl_mailbox *mailbox, uint64_t deadline_ns);
bool __wrap_sl_mailbox_spin(struct sl_mailbox *mailbox, uint64_t deadline_ns)
{
    (void)mailbox, (void)deadline_ns;
    return false;
}

uint64_t __wrap_sl_mailbox_sleep(struct sl_mailbox *mailbox, uint64_t now_ns);
uint64_t __wrap_sl_mailbox_sleep(struct sl_mailbox *mailbox, uint64_t now_ns)
{
    (void)now_ns;
    return ((struct sim_node *)(void *)mailbox)->program->inbox_count > 0 ? 0 : SL_NEVER_NS;
}

/* ---- calls in the middle of which other processes run ---- */

struct sl_digest __real_sl_digest_copy(void *to, const void *from, uint64_t length_bytes);
struct sl_digest __wrap_sl_digest_copy(void *to, const void *from, uint64_t length_bytes);
struct sl_digest __wrap_sl_digest_copy(void *to, const void *from, uint64_t length_bytes)
{
    if (running != NULL) {
        dawdle(250, DAWDLE_LONG_NS);
        memcpy(to, from, length_bytes / 2);
        dawdle(6, DAWDLE_NS);
        dawdle(250, DAWDLE_LONG_NS);
    }
    return __real_sl_digest_copy(to, from, length_bytes);
}

bool __real_sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry);
bool __wrap_sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry);
bool __wrap_sl_index_unchanged(const struct sl_index_view *view, const struct sl_entry *entry)
{
    dawdle(6, DAWDLE_NS); /* the bytes were copied; the entry may change before the check */
    return sim_copies_unchecked || __real_sl_index_unchanged(view, entry);
}

sl_err __real_sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                           const struct sl_entry *entry, sl_pin *out);
sl_err __wrap_sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                           const struct sl_entry *entry, sl_pin *out);
sl_err __wrap_sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                           const struct sl_entry *entry, sl_pin *out)
{
    dawdle(6, DAWDLE_NS); /* it was found; it may be removed by now */
    return __real_sl_pins_take(pins, view, entry, out);
}

sl_err __real_sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                                 uint64_t generation, uint64_t length_bytes, sl_pin *out);
sl_err __wrap_sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                                 uint64_t generation, uint64_t length_bytes, sl_pin *out);
sl_err __wrap_sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                                 uint64_t generation, uint64_t length_bytes, sl_pin *out)
{
    dawdle(6, DAWDLE_NS); /* it was granted; the grant may be revoked by now */
    return __real_sl_pins_take_grant(pins, view, ref, generation, length_bytes, out);
}
/* NOLINTEND(bugprone-reserved-identifier) */
