/* client/python/jobs.cpp - the pool of jobs.hpp. Threads share a job by taking slices of it. */
#include "client/python/jobs.hpp"
#include "runtime/base/sl_signals.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace py
{

/* A slice is run by one thread in one call. It is large enough that round trips do not matter. */
constexpr uint32_t slice_keys = 256;
constexpr uint64_t slice_bytes_min = UINT64_C(4) << 20;
constexpr uint64_t slice_bytes_max = UINT64_C(32) << 20;
constexpr uint32_t threads_max = 64;
constexpr uint32_t depth_most = 65536;

static uint64_t now_ns()
{
    return static_cast<uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/* ---- work of a job: without the lock ---- */

void look_at(sl_client *client, const sl_object_key *keys, uint32_t count, sl_err *codes,
             uint64_t timeout_ns, sl_error *why)
{
    sl_err err = sl_exists_batch(client, keys, count, codes);
    if (err != SL_OK) {
        std::fill_n(codes, count, err);
        return;
    }
    if (!sl_client_has_peers(client)) {
        return;
    }
    try {
        std::vector<sl_object_key> asked;
        for (uint32_t i = 0; i < count; i++) {
            if (codes[i] == SL_ERR_NOT_FOUND) {
                asked.push_back(keys[i]);
            }
        }
        const auto missing = static_cast<uint32_t>(asked.size());
        std::vector<sl_remote_info> found(missing);
        std::vector<sl_err> answers(missing, SL_ERR_NOT_FOUND);
        err = sl_remote_lookup_batch(client, asked.data(), missing, found.data(), answers.data(),
                                     timeout_ns, why);
        for (uint32_t i = 0, next = 0; i < count; i++) {
            codes[i] = codes[i] == SL_ERR_NOT_FOUND ? answers[next++] : codes[i];
        }
    } catch (const std::bad_alloc &) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err != SL_OK) { /* it is not known which keys a peer answered */
        std::replace(codes, codes + count, SL_ERR_NOT_FOUND, err);
    }
}

sl_err jobs::copy_slice(const slice &part, uint64_t left_ns, sl_error *why)
{
    const job &of = *part.of;
    sl_iov_list items[slice_keys] = {};
    uint64_t lengths[slice_keys] = {};
    sl_err *codes = &of.codes[part.first];
    for (uint32_t i = 0; i < part.count; i++) {
        items[i].key = of.keys[part.first + i];
        items[i].at = &of.pieces[part.first + i];
        items[i].count = 1;
    }
    if (of.kind == task::put) {
        return sl_putv(client, items, part.count, nullptr, codes, left_ns, why);
    }
    const sl_err err = sl_getv(client, items, part.count, true, lengths, codes, left_ns, why);
    /* A value smaller than its piece leaves the rest of the piece unwritten, so it is no hit. */
    for (uint32_t i = 0; err == SL_OK && i < part.count; i++) {
        const uint64_t room_bytes = items[i].at->length_bytes;
        if (codes[i] == SL_OK && lengths[i] != room_bytes) {
            codes[i] = why->code = SL_ERR_LIMIT;
            (void)std::snprintf(why->text, sizeof why->text,
                                "the value has %" PRIu64 " bytes, the buffer %" PRIu64, lengths[i],
                                room_bytes);
        }
    }
    return err;
}

void jobs::run_slice(const slice &part, sl_error *why)
{
    const job &of = *part.of;
    const sl_object_key *keys = &of.keys[part.first];
    sl_err *codes = &of.codes[part.first];
    const uint64_t at_ns = now_ns();
    const uint64_t left_ns = of.deadline_ns > at_ns ? of.deadline_ns - at_ns : 0;
    sl_err err = SL_OK;
    if (left_ns == 0) {
        err = SL_ERR_TIMEOUT;
    } else if (of.kind == task::look) {
        look_at(client, keys, part.count, codes, left_ns, why);
    } else if (of.kind == task::remove) {
        err = sl_remove_batch(client, keys, part.count, nullptr, codes, left_ns, why);
    } else {
        err = copy_slice(part, left_ns, why);
    }
    if (err != SL_OK) {
        std::fill_n(codes, part.count, err);
    }
}

/* ---- queues: with the lock ---- */

void jobs::end(job &gone)
{
    const uint64_t one = 1;
    ended.splice(ended.end(), taken, gone.place);
    /* The write fails only at 2^64 - 1, where the eventfd is readable as well. */
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

void jobs::settled(job &of, uint32_t count, const sl_error *why)
{
    if (why != nullptr && of.why.code == SL_OK) {
        of.why = *why;
    }
    of.settled += count;
    if (of.settled == of.count) {
        end(of);
        if (--pending_count == 0) {
            idle.notify_all();
        }
    }
}

/* Ends the keys of the lane's first job that no thread has taken. */
void jobs::give_up(lane of, sl_err code)
{
    job &first = *lanes[of].front();
    const uint32_t left = first.count - first.taken;
    taken.splice(taken.end(), lanes[of], first.place);
    std::fill_n(&first.codes[first.taken], left, code);
    first.taken = first.count;
    settled(first, left, nullptr);
}

/* Ends jobs at the head of both lanes whose deadline has passed. Both, because the threads of the
 * other lane may be busy for long. */
void jobs::expire()
{
    const uint64_t at_ns = now_ns();
    for (const lane each : {reads, writes}) {
        while (!lanes[each].empty() && lanes[each].front()->deadline_ns <= at_ns) {
            give_up(each, SL_ERR_TIMEOUT);
        }
    }
}

bool jobs::take(lane from, slice *out)
{
    if (lanes[from].empty()) {
        return false;
    }
    job *of = lanes[from].front().get();
    uint64_t bytes = 0;
    *out = {of, of->taken, 0};
    while (of->taken < of->count && out->count < slice_keys) {
        bytes += of->pieces == nullptr ? 0 : of->pieces[of->taken].length_bytes;
        if (out->count > 0 && bytes > of->slice_bytes) {
            break;
        }
        out->count++;
        of->taken++;
    }
    if (of->taken == of->count) {
        taken.splice(taken.end(), lanes[from], of->place);
    }
    return true;
}

void jobs::run(lane preferred, bool alone)
{
    std::unique_lock<std::mutex> held(lock);
    while (!stopping) {
        slice part = {};
        expire();
        if (!take(preferred, &part) &&
            (alone || !take(preferred == reads ? writes : reads, &part))) {
            work.wait(held);
            continue;
        }
        sl_error why = {};
        held.unlock();
        run_slice(part, &why);
        held.lock();
        settled(*part.of, part.count, &why);
    }
}

/* ---- life ---- */

sl_err jobs::start(uint32_t thread_count, sl_error *why)
{
    if (thread_count < 1 || thread_count > threads_max || depth_max < 1 || depth_max > depth_most) {
        return (*why = {SL_ERR_INVALID, 0, "threads are 1 to 64, depth is 1 to 65536"}).code;
    }
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
        return (*why = {SL_ERR_OS, errno, "eventfd"}).code;
    }
    const bool several = thread_count > 1;
    sigset_t all, before;
    sl_signals_of_others(&all); /* signals go to the interpreter's threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        for (uint32_t i = 0; i < thread_count; i++) {
            threads.emplace_back(&jobs::run, this, several && i == 0 ? writes : reads,
                                 several && i == thread_count - 1);
        }
    } catch (const std::system_error &error) {
        *why = {SL_ERR_OS, error.code().value(), "start a thread"};
    } catch (const std::bad_alloc &) {
        *why = {SL_ERR_NO_MEMORY, 0, "no memory for a thread"};
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return why->code;
}

job_list jobs::stop()
{
    {
        const std::lock_guard<std::mutex> held(lock);
        stopping = true;
        for (const lane each : {reads, writes}) {
            while (!lanes[each].empty()) {
                give_up(each, SL_ERR_CANCELLED);
            }
        }
        work.notify_all();
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return std::move(ended);
}

/* ---- for callers ---- */

/* Divides a large job among all threads. */
static uint64_t slice_bytes_of(const job &of, size_t thread_count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; of.pieces != nullptr && i < of.count; i++) {
        bytes += of.pieces[i].length_bytes;
    }
    return std::clamp(bytes / thread_count + 1, slice_bytes_min, slice_bytes_max);
}

uint64_t jobs::submit(std::unique_ptr<job> given)
{
    job &of = *given;
    job_list one;
    one.push_back(std::move(given));
    of.place = one.begin();
    of.slice_bytes = slice_bytes_of(of, threads.size());
    of.deadline_ns = now_ns() + of.timeout_ns;
    const lane to = of.kind == task::get || of.kind == task::look ? reads : writes;
    const std::lock_guard<std::mutex> held(lock);
    const uint64_t id = of.id = ++next_id;
    if (of.count > 0 && pending_count < depth_max) {
        pending_count++;
        lanes[to].splice(lanes[to].end(), one);
        work.notify_all();
    } else {
        std::fill_n(of.codes, of.count, SL_ERR_LIMIT);
        taken.splice(taken.end(), one);
        end(of);
    }
    return id;
}

job_list jobs::drain()
{
    uint64_t count = 0;
    /* Read before the list is taken: a job that ends later makes the eventfd readable again. */
    [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
    const std::lock_guard<std::mutex> held(lock);
    return std::exchange(ended, {});
}

uint32_t jobs::pending()
{
    const std::lock_guard<std::mutex> held(lock);
    return pending_count;
}

bool jobs::wait(uint64_t timeout_ns)
{
    std::unique_lock<std::mutex> held(lock);
    return idle.wait_for(held, std::chrono::nanoseconds(timeout_ns),
                         [&] { return pending_count == 0; });
}

} // namespace py
