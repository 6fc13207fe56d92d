/* tests/sim/sim_process.h - programs of several threads with sockets and files: code that blocks,
 * as it is shipped.
 *
 * Each thread is a program of the simulator. Their calls for threads, locks, sockets, polls and
 * files are led here by the linker (--wrap). Sockets are TCP between hosts: pieces arrive in their
 * order, some time later; what a cut holds back comes after it. A process that is killed has its
 * sockets closed by its system. One whose host loses power is silent, and of its files is left what
 * a power cut may leave. Other threads, and kills, come between any two calls that change files. */
#ifndef SL_TEST_SIM_PROCESS_H
#define SL_TEST_SIM_PROCESS_H

#include "tests/sim/sim.h"

/* Gives its number, which is of one life. It ends when run returns and no other thread is left. */
uint32_t sim_process_start(struct sim *sim, uint32_t host, void (*run)(void *context),
                           void *context);
void sim_process_kill(uint32_t process); /* SIGKILL */
void sim_process_stop(struct sim *sim, uint32_t process, uint64_t duration_ns);
/* All of a host are gone, and say nothing to anybody. */
void sim_process_power(const struct sim *sim, uint32_t host);
uint32_t sim_process_threads(const struct sim *sim, uint32_t process); /* that are there */

/* The address of a host, as of its sockets from now on; at first 10.0.0.1 and so on. */
void sim_tcp_address(uint32_t host, const char *ip);
/* Nobody answers there, until it is called with false. */
void sim_tcp_off(uint32_t host, bool off);
uint32_t sim_tcp_open(uint32_t host); /* how many sockets it has */
/* Told what is sent; piece by piece. NULL: nobody. */
void sim_tcp_spy(void (*seen)(const char *bytes, size_t length));

/* From now on what processes write, sync and name in this directory of the host, which is empty, is
 * noted. */
void sim_files_watch(uint32_t host, const char *directory);
/* Its power is cut: the directory holds what that leaves. */
void sim_files_cut(struct sim *sim, uint32_t host);

/* Until then no file of it can be written. */
void sim_files_full(uint32_t host, uint64_t until_ns);
/* The directory is empty, as on a root that keeps nothing. */
void sim_files_lose(uint32_t host);

extern bool sim_locks_lock_nothing, sim_files_sync_nothing; /* mutants */

#endif
