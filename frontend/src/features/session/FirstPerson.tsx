/** How the first person of an installation is made: by a command on its machine, since the API makes no people. */
export function FirstPerson() {
  return (
    <>
      <p>
        The first person of an installation is made on its machine, as an owner. The command asks for the password, or
        takes it from standard input:
      </p>
      <pre className="mt-2 overflow-x-auto rounded-md bg-raised px-3 py-2 text-xs text-text">
        <code>weir up --first-user EMAIL</code>
      </pre>
      <p className="mt-2">In containers, inside of the service api:</p>
      <pre className="mt-2 overflow-x-auto rounded-md bg-raised px-3 py-2 text-xs text-text">
        <code>weir-admin user create EMAIL</code>
      </pre>
    </>
  )
}
