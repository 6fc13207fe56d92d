/* tests/python/no_memory.cpp - preloaded: fails this thread's n-th next C++ allocation. */
#include <cstdlib>
#include <new>

static thread_local int left;

extern "C" void no_memory_at(int n);
void no_memory_at(int n)
{
    left = n;
}

void *operator new(std::size_t bytes)
{
    void *at = left > 0 && --left == 0 ? nullptr : std::malloc(bytes);
    return at != nullptr ? at : throw std::bad_alloc();
}
