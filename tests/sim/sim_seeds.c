/* tests/sim/sim_seeds.c - see the header. */
#include "tests/sim/sim_seeds.h"

#include "tests/sim/sim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TWICE_OF    50u   /* one run in TWICE_OF is repeated and must give the same hash */
#define TELL_OF     500u  /* a line is printed every TELL_OF runs */
#define SECONDS_MAX 1200u /* then a run counts as hung; other work may delay it */

struct shared { /* between the processes that run seeds */
    _Atomic uint64_t next, done, failed;
    _Atomic uint64_t hash;
};

/* Runs a seed in a process of its own: memory of killed actors is only freed by its end. Returns
 * whether it passed. */
static bool run_child(const struct sim_seeds *seeds, struct shared *shared, uint64_t seed)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(SECONDS_MAX);
        atomic_store(&shared->hash, seeds->run(seed));
        _exit(EXIT_SUCCESS); /* no leak check: heaps of killed actors are lost on purpose */
    }
    int status = 0;
    bool passed = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                  WEXITSTATUS(status) == EXIT_SUCCESS;
    if (!passed) {
        sim_sweep((uint32_t)child, seed);
        fprintf(
            stderr, "seed %llu failed (%s, status %x): replay it with SL_SIM_SEED=%llu %s%s%s\n",
            (unsigned long long)seed, seeds->name(seed), (unsigned)status, (unsigned long long)seed,
            program_invocation_name, seeds->arguments != NULL ? " " : "",
            seeds->arguments != NULL ? seeds->arguments : "");
    }
    return passed;
}

static uint64_t setting(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    return text == NULL ? standard : strtoull(text, NULL, 10);
}

/* Runs the seed with its output in a memory file. */
static void quiet_child(const struct sim_seeds *seeds, uint64_t seed, int said)
{
    (void)alarm(SECONDS_MAX);
    (void)dup2(said, STDOUT_FILENO);
    (void)dup2(said, STDERR_FILENO);
    (void)seeds->run(seed);
    _exit(EXIT_SUCCESS);
}

/* Returns whether it failed, and the first line of its output. */
static bool fails_quietly(const struct sim_seeds *seeds, uint64_t seed, char text[SIM_SEEDS_TEXT])
{
    int said = memfd_create("sim-said", MFD_CLOEXEC), status = 0;
    fflush(NULL);
    pid_t child = said < 0 ? -1 : fork();
    if (child == 0) {
        quiet_child(seeds, seed, said);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("a run");
        exit(EXIT_FAILURE);
    }
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS;
    ssize_t length = pread(said, text, SIM_SEEDS_TEXT - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    (void)close(said);
    if (failed) {
        sim_sweep((uint32_t)child, seed);
    }
    if (failed && text[0] == '\0') {
        (void)snprintf(text, SIM_SEEDS_TEXT, "status %x", (unsigned)status);
    }
    return failed;
}

uint64_t sim_seeds_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed), uint64_t likely,
                        char text[SIM_SEEDS_TEXT])
{
    uint64_t count = setting("SL_SIM_SEEDS", seeds->count), first = setting("SL_SIM_FROM", 0);
    if (fails_quietly(seeds, likely, text)) {
        return likely;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        if ((fits == NULL || fits(seed)) && fails_quietly(seeds, seed, text)) {
            return seed;
        }
    }
    return UINT64_MAX;
}

int sim_mutants_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed),
                     const struct sim_mutant *mutants, uint32_t count)
{
    uint32_t missed = 0;
    for (uint32_t i = 1; i < count; i++) {
        char number[16], text[SIM_SEEDS_TEXT];
        (void)snprintf(number, sizeof(number), "%u", i);
        (void)setenv("SL_SIM_MUTANT", number, 1);
        uint64_t seed = sim_seeds_find(seeds, fits, mutants[i].seed, text);
        bool found = seed != UINT64_MAX;
        missed += found ? 0 : 1;
        printf("mutant %u, %s: %s", i, mutants[i].name, found ? "found" : "NOT FOUND\n");
        if (found) {
            printf(" by seed %llu (%s): %s\n", (unsigned long long)seed, seeds->name(seed), text);
        }
        fflush(stdout);
    }
    (void)unsetenv("SL_SIM_MUTANT");
    return missed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

uint32_t sim_mutant_number(uint32_t count)
{
    uint64_t number = setting("SL_SIM_MUTANT", 0);
    return number < count ? (uint32_t)number : 0;
}

/* hash: combined over all seeds. */
static void run_share(const struct sim_seeds *seeds, struct shared *shared, struct shared *own,
                      uint64_t first, uint64_t count)
{
    for (;;) {
        uint64_t at = atomic_fetch_add(&shared->next, 1);
        if (at >= count) {
            return;
        }
        uint64_t seed = first + at;
        bool passed = run_child(seeds, own, seed);
        if (passed && at % TWICE_OF == 0) {
            uint64_t hash = atomic_load(&own->hash);
            passed = run_child(seeds, own, seed);
            if (passed && hash != atomic_load(&own->hash)) {
                fprintf(stderr, "seed %llu: two runs are not the same\n", (unsigned long long)seed);
                passed = false;
            }
        }
        uint64_t done = atomic_fetch_add(&shared->done, 1) + 1;
        if (done % TELL_OF == 0) {
            printf("%llu of %llu seeds\n", (unsigned long long)done, (unsigned long long)count);
            fflush(stdout);
        }
        atomic_fetch_add(&shared->failed, passed ? 0 : 1);
    }
}

int sim_seeds_main(const struct sim_seeds *seeds)
{
    uint64_t one = setting("SL_SIM_SEED", UINT64_MAX);
    if (one != UINT64_MAX) {
        (void)seeds->run(one);
        return EXIT_SUCCESS;
    }
    uint64_t count = setting("SL_SIM_SEEDS", seeds->count), first = setting("SL_SIM_FROM", 0);
    uint64_t quarter = setting("SL_SIM_QUARTER", 4);
    if (quarter < 4) {
        count = (count + 3) / 4;
        first += quarter * count;
    }
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t jobs =
        SL_MIN(setting("SL_SIM_JOBS", processors > 0 ? (uint64_t)processors : 1), UINT64_C(64));
    struct shared *shared = mmap(NULL, (jobs + 1) * sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return EXIT_FAILURE;
    }
    for (uint64_t i = 0; i < jobs; i++) {
        if (fork() == 0) {
            run_share(seeds, shared, &shared[i + 1], first, count);
            _exit(EXIT_SUCCESS);
        }
    }
    while (wait(NULL) > 0) {
    }
    uint64_t done = atomic_load(&shared->done), failed = atomic_load(&shared->failed);
    printf("%llu of %llu seeds from %llu on, %llu failed\n", (unsigned long long)done,
           (unsigned long long)count, (unsigned long long)first, (unsigned long long)failed);
    return done == count && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
