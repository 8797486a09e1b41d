// torch.compile in the same process: disables its frame hook on this thread while graftjit's Python
// code makes an entry.
#pragma once

#include "frame/objects.h"

// While the object lives, Dynamo's frame hook compiles nothing on this thread, since frames of
// graftjit, and of torch below them, are not part of the program. Does nothing unless the program
// has imported torch._dynamo.
class WithoutDynamo {
  public:
    WithoutDynamo();
    WithoutDynamo(const WithoutDynamo &) = delete;
    ~WithoutDynamo();

  private:
    // Dynamo's function to set its callback, and the callback to restore.
    Ref set_callback;
    Ref before;
    bool on_top = false;
};
