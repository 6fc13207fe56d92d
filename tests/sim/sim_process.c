/* tests/sim/sim_process.c - threads of processes: each is a program of the simulator. */
#include "tests/sim/sim_process.h"
#include "tests/sim/sim_internal.h"

#define THREADS_MAX  200u
#define JOIN_LOOK_NS (2 * SL_NS_PER_MS)
#define START_NS_MAX (300 * SL_NS_PER_US)

static struct sim_thread threads[THREADS_MAX];
static uint32_t thread_count, process_count;

static void others_end(const struct sim_thread *self, uint32_t process)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[i].process == process && &threads[i] != self) {
            sim_kill(sim_world, threads[i].node, SL_NEVER_NS);
            threads[i].process = 0;
        }
    }
}

static void thread_main(void *context)
{
    struct sim_thread *self = context;
    sim_sleep(1 + sim_random_below(sim_world, START_NS_MAX));
    if (self->run_thread != NULL) {
        (void)self->run_thread(self->context);
        self->ended = true; /* its entry is kept until it is joined */
        return;
    }
    self->run(self->context);
    others_end(self, self->process);
    sim_tcp_close_all(self->process, false);
    self->process = 0;
}

/* An entry whose thread no longer runs. */
static struct sim_thread *thread_place(struct sim *sim)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[i].process == 0 && !sim_alive(sim, threads[i].node)) {
            return &threads[i];
        }
    }
    SIM_CHECK(thread_count < THREADS_MAX, "too many threads");
    return &threads[thread_count++];
}

static struct sim_thread *thread_start(struct sim *sim, struct sim_thread what)
{
    struct sim_thread *thread = thread_place(sim);
    bool again = thread->run != NULL || thread->run_thread != NULL;
    what.node = thread->node;
    *thread = what;
    if (again) {
        sim_program_restart(sim, thread->node, thread_main, thread);
    } else {
        thread->node = sim_start_program(sim, thread_main, thread);
    }
    return thread;
}

uint32_t sim_process_start(struct sim *sim, uint32_t host, void (*run)(void *context),
                           void *context)
{
    sim_host_use(sim, host);
    uint32_t process = ++process_count;
    (void)thread_start(sim,
                       (struct sim_thread){.process = process, .run = run, .context = context});
    return process;
}

/* Called from outside: none of its threads runs now. */
static void process_end(uint32_t process, bool power)
{
    others_end(NULL, process);
    sim_tcp_close_all(process, power);
}

void sim_process_kill(uint32_t process)
{
    process_end(process, false);
}

void sim_process_stop(struct sim *sim, uint32_t process, uint64_t duration_ns)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[i].process == process) {
            sim_stop(sim, threads[i].node, duration_ns);
        }
    }
}

uint32_t sim_process_threads(const struct sim *sim, uint32_t process)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < thread_count; i++) {
        count += threads[i].process == process && sim_alive(sim, threads[i].node) ? 1 : 0;
    }
    return count;
}

void sim_process_power(const struct sim *sim, uint32_t host)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        if (threads[i].process != 0 && sim_host_number(&sim->nodes[threads[i].node]) == host) {
            process_end(threads[i].process, true);
        }
    }
}

uint64_t sim_thread_start(struct sim *sim, uint32_t process, void *(*run)(void *context),
                          void *context)
{
    const struct sim_thread what = {.process = process, .run_thread = run, .context = context};
    sim_host_use(sim, sim_host_number(sim->turn));
    return (uint64_t)(thread_start(sim, what) - threads) + 1;
}

void sim_thread_join(uint64_t number)
{
    struct sim_thread *thread = &threads[number - 1];
    while (!thread->ended) {
        sim_sleep(JOIN_LOOK_NS);
    }
    thread->process = 0;
}

struct sim_thread *sim_thread_running(void)
{
    const struct sim_node *turn = sim_world == NULL ? NULL : sim_world->turn;
    for (uint32_t i = 0; turn != NULL && turn->program != NULL && i < thread_count; i++) {
        if (threads[i].process != 0 && threads[i].node == sim_number(turn)) {
            return &threads[i];
        }
    }
    return NULL;
}

void sim_process_wake(uint32_t process, uint64_t at_ns)
{
    for (uint32_t i = 0; i < thread_count; i++) {
        struct sim_node *node = &sim_world->nodes[threads[i].node];
        if (threads[i].process == process && threads[i].polls && node->alive) {
            sim_env_wake_at(&node->env, at_ns);
        }
    }
}
