import { useState } from "react";
import { Head } from "./parts";

/** Asks for a bearer token; the server's operator hands them out. */
export function SignIn({ wrong, onToken }: { wrong: boolean; onToken: (token: string) => void }) {
  const [value, setValue] = useState("");
  return (
    <div className="signin stack">
      <Head title="Sign in" />
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (value.trim() !== "") onToken(value.trim());
        }}
      >
        <p className="quiet">This server shows figures to those who have one of its tokens. Its operator gives them out; a project{"\u2019"}s token shows that project only.</p>
        {wrong ? (
          <p className="alert bad" role="alert">
            The server does not know this token.
          </p>
        ) : null}
        <label className="labelled">
          Token
          <input className="field mono" type="password" autoComplete="current-password" value={value} onChange={(e) => setValue(e.target.value)} autoFocus />
        </label>
        <button type="submit" className="button main">
          Sign in
        </button>
        <p className="quiet small">It is kept until this tab is closed.</p>
      </form>
    </div>
  );
}
