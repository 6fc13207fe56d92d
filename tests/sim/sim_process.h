/* tests/sim/sim_process.h - programs of several threads with sockets and files, for blocking code
 * as it is shipped.
 *
 * Each thread is a program of the simulator. The linker (--wrap) directs their calls for threads,
 * locks, sockets, polls and files to the simulator. Sockets are TCP between hosts: bytes arrive in
 * order after a delay, and bytes held back by a cut arrive after it. The system of a killed process
 * closes its sockets. A process whose host loses power closes nothing, and its files hold any state
 * that a power cut may leave. Other threads run, and kills happen, between any two calls that
 * change files. */
#ifndef SL_TEST_SIM_PROCESS_H
#define SL_TEST_SIM_PROCESS_H

#include "tests/sim/sim.h"

/* Returns its number, of one life. It ends when run returns and its other threads have ended. */
uint32_t sim_process_start(struct sim *sim, uint32_t host, void (*run)(void *context),
                           void *context);
void sim_process_kill(uint32_t process); /* SIGKILL */
void sim_process_stop(struct sim *sim, uint32_t process, uint64_t duration_ns);
/* Ends all processes of a host without notifying their peers. */
void sim_process_power(const struct sim *sim, uint32_t host);
uint32_t sim_process_threads(const struct sim *sim, uint32_t process); /* threads that still run */

/* Sets a host's address, used by sockets made from now on; the default is 10.0.0.1 and so on. */
void sim_tcp_address(uint32_t host, const char *ip);
/* Makes the host unreachable until called with false. */
void sim_host_unreachable(uint32_t host, bool off);
uint32_t sim_tcp_open(uint32_t host); /* number of its sockets */
/* Passes everything that is sent to `seen`, piece by piece. NULL: stops. */
void sim_tcp_spy(void (*seen)(const char *bytes, size_t length));

/* Records writes, syncs and name changes in this directory of the host, which must be empty. */
void sim_files_watch(uint32_t host, const char *directory);
/* Cuts its power: the directory then holds a state that a power cut may leave. */
void sim_files_cut(struct sim *sim, uint32_t host);

/* No file of the host can be written until then. */
void sim_files_full(uint32_t host, uint64_t until_ns);
/* Empties the directory, as on a root file system that keeps nothing. */
void sim_files_empty(uint32_t host);

extern bool sim_locks_lock_nothing, sim_files_sync_nothing; /* mutants */

#endif
